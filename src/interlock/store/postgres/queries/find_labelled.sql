-- The same as find.sql for who asks for labels: each set of labels and state has a stretch of its own.
WITH RECURSIVE present (labels, state) AS (
    (
        SELECT record.labels, record.state FROM interlock.record
        WHERE record.kind = $2 AND record.labels <> '{}'
        ORDER BY record.labels, record.state LIMIT 1
    )
    UNION ALL
    SELECT following.labels, following.state
    FROM present
    CROSS JOIN LATERAL (
        SELECT record.labels, record.state FROM interlock.record
        WHERE record.kind = $2 AND record.labels <> '{}'
          AND (record.labels, record.state) > (present.labels, present.state)
        ORDER BY record.labels, record.state LIMIT 1
    ) AS following
), wanted (labels, state) AS (
    SELECT present.labels, present.state FROM present
    WHERE present.labels @> {last} AND ($3::text[] IS NULL OR present.state = ANY ($3))
)
SELECT found.*
FROM wanted
CROSS JOIN LATERAL (
    SELECT kind, id, record.state, version, body, parent, queue, record.labels, priority, ready_at, deadline_at,
        created_at, updated_at
    FROM interlock.record
    WHERE record.labels = wanted.labels AND record.labels <> '{}' AND record.state = wanted.state
      AND {conditions}
    ORDER BY created_at {order}, id {order}
    LIMIT $1
) AS found
ORDER BY found.created_at {order}, found.id {order}
LIMIT $1
