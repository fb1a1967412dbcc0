-- The same as find_labelled.sql, counted.
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
SELECT count(*) FROM (
    SELECT FROM wanted
    CROSS JOIN LATERAL (
        SELECT FROM interlock.kept AS record
        WHERE record.labels = wanted.labels AND record.labels IS NOT NULL AND record.state = wanted.state
          AND {conditions}
        LIMIT $1
    ) AS found
    LIMIT $1
) AS counted
