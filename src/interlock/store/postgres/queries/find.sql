-- The conditions and the order are put in by rows.py, from a fixed set of phrases. Each state has its own
-- stretch of the index, in the order of creation, and the stretches are merged. Who asks for no state ($3)
-- asks for all that its table has, or once had: see load_kind.sql.
WITH wanted (state) AS (
    SELECT unnest($3::text[])
    UNION ALL
    SELECT state.name FROM interlock.state WHERE $3 IS NULL AND state.kind = $2
)
SELECT found.*
FROM wanted
CROSS JOIN LATERAL (
    SELECT kind, id, record.state, version, body, parent, queue, labels, priority, ready_at, deadline_at,
        created_at, updated_at
    FROM interlock.record
    WHERE interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
      AND record.state = wanted.state AND {conditions}
    ORDER BY created_at {order}, id {order}
    LIMIT $1
) AS found
ORDER BY found.created_at {order}, found.id {order}
LIMIT $1
