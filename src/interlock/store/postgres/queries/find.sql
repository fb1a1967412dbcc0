-- The conditions and the order are put in by rows.py, from a fixed set of phrases. Each state has its own
-- stretch of three indexes, in the order of creation (but for those with a deadline, which are sorted), and the
-- stretches are merged. Who asks for no state ($3) asks for all that its table has, or once had: see
-- load_kind.sql.
WITH wanted (state) AS (
    SELECT unnest($3::text[])
    UNION ALL
    SELECT state.name FROM interlock.state WHERE $3 IS NULL AND state.kind = $2
)
SELECT found.kind, found.id, found.state, found.version, found.body, spec.given, found.result, found.parent,
    found.queue, found.labels, found.priority, found.ready_at, found.deadline_at, found.created_at,
    found.updated_at
FROM (
    SELECT record.*
    FROM wanted
    CROSS JOIN LATERAL (
        (
            SELECT * FROM interlock.kept_live AS record
            WHERE record.deadline_at IS NULL
              AND interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
              AND record.state = wanted.state AND {conditions}
            ORDER BY record.created_at {order}, record.id {order}
            LIMIT $1
        )
        UNION ALL
        (
            SELECT * FROM interlock.kept_live AS record
            WHERE record.deadline_at IS NOT NULL
              AND interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
              AND record.state = wanted.state AND {conditions}
            ORDER BY record.created_at {order}, record.id {order}
            LIMIT $1
        )
        UNION ALL
        (
            SELECT * FROM interlock.kept_ended AS record
            WHERE interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
              AND record.state = wanted.state AND {conditions}
            ORDER BY record.created_at {order}, record.id {order}
            LIMIT $1
        )
    ) AS record
    ORDER BY record.created_at {order}, record.id {order}
    LIMIT $1
) AS found
LEFT JOIN LATERAL (
    SELECT spec.given FROM interlock.spec WHERE spec.id = found.id AND spec.kind = $2 OFFSET 0
) AS spec ON true
ORDER BY found.created_at {order}, found.id {order}
