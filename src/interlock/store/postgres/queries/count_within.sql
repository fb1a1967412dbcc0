-- How many of the first so many ($1) of each state are in a queue, and whether there are more to look at.
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
SELECT coalesce(sum(counted.found), 0)::bigint, coalesce(bool_or(counted.looked_at >= $1), false)
FROM wanted
CROSS JOIN LATERAL (
    SELECT count(*) AS looked_at, count(*) FILTER (WHERE looked_at.queue = {last}) AS found
    FROM (
        SELECT record.queue FROM interlock.record
        WHERE record.state = wanted.state AND {conditions}
        ORDER BY record.created_at DESC, record.id DESC LIMIT $1
    ) AS looked_at
) AS counted
