-- How many sets of labels and states there are, counted up to $2: see find_labelled.sql.
WITH RECURSIVE present (labels, state) AS (
    (
        SELECT record.labels, record.state FROM interlock.kept AS record
        WHERE record.kind = $1 AND record.labels IS NOT NULL
        ORDER BY record.labels, record.state LIMIT 1
    )
    UNION ALL
    SELECT following.labels, following.state
    FROM present
    CROSS JOIN LATERAL (
        SELECT record.labels, record.state FROM interlock.kept AS record
        WHERE record.kind = $1 AND record.labels IS NOT NULL
          AND (record.labels, record.state) > (present.labels, present.state)
        ORDER BY record.labels, record.state LIMIT 1
    ) AS following
)
SELECT count(*) FROM (SELECT FROM present LIMIT $2) AS counted
