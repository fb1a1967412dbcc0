-- The same as find.sql, counted.
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
SELECT count(*) FROM (
    SELECT FROM wanted
    CROSS JOIN LATERAL (
        SELECT FROM interlock.record WHERE record.state = wanted.state AND {conditions} LIMIT $1
    ) AS found
    LIMIT $1
) AS counted
