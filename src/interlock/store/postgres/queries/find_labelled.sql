-- The same as find.sql for who asks for labels: each set of labels and state has a stretch of its own.
WITH RECURSIVE present (labels, state) AS (
    (
        SELECT record.labels, record.state FROM interlock.kept AS record
        WHERE record.kind = $2 AND record.labels IS NOT NULL
        ORDER BY record.labels, record.state LIMIT 1
    )
    UNION ALL
    SELECT following.labels, following.state
    FROM present
    CROSS JOIN LATERAL (
        SELECT record.labels, record.state FROM interlock.kept AS record
        WHERE record.kind = $2 AND record.labels IS NOT NULL
          AND (record.labels, record.state) > (present.labels, present.state)
        ORDER BY record.labels, record.state LIMIT 1
    ) AS following
), wanted (labels, state) AS (
    SELECT present.labels, present.state FROM present
    WHERE present.labels @> {last} AND ($3::text[] IS NULL OR present.state = ANY ($3))
)
SELECT found.kind, found.id, found.state, found.version, found.body, spec.given, found.result, found.parent,
    found.queue, found.labels, found.priority, found.ready_at, found.deadline_at, found.created_at,
    found.updated_at
FROM (
    SELECT record.*
    FROM wanted
    CROSS JOIN LATERAL (
        SELECT * FROM interlock.kept AS record
        WHERE record.labels = wanted.labels AND record.labels IS NOT NULL AND record.state = wanted.state
          AND {conditions}
        ORDER BY record.created_at {order}, record.id {order}
        LIMIT $1
    ) AS record
    ORDER BY record.created_at {order}, record.id {order}
    LIMIT $1
) AS found
LEFT JOIN LATERAL (
    SELECT spec.given FROM interlock.spec WHERE spec.id = found.id AND spec.kind = $2 OFFSET 0
) AS spec ON true
ORDER BY found.created_at {order}, found.id {order}
