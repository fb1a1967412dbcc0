-- The conditions and the order are put in by rows.py, from a fixed set of phrases. Each state has its own
-- stretch of the index, in the order of creation, and the stretches are merged. Who asks for no state ($3)
-- asks for all there are: those are found by jumping from one to the next.
WITH RECURSIVE present (state) AS (
    (
        SELECT record.state FROM interlock.record
        WHERE $3::text[] IS NULL AND record.kind = $2 AND record.version > 0
        ORDER BY record.state LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT record.state FROM interlock.record
        WHERE record.kind = $2 AND record.version > 0 AND record.state > present.state
        ORDER BY record.state LIMIT 1
    )
    FROM present WHERE present.state IS NOT NULL
), wanted (state) AS (
    SELECT unnest($3::text[]) UNION ALL SELECT present.state FROM present
)
SELECT found.*
FROM wanted
CROSS JOIN LATERAL (
    SELECT kind, id, record.state, version, body, parent, queue, labels, priority, ready_at, deadline_at, chain,
        created_at, updated_at
    FROM interlock.record
    WHERE record.state = wanted.state AND {conditions}
    ORDER BY created_at {order}, id {order}
    LIMIT $1
) AS found
ORDER BY found.created_at {order}, found.id {order}
LIMIT $1
