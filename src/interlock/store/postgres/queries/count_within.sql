-- How many of the first so many ($1) of each state are in a queue, and whether there are more to look at.
WITH wanted (state) AS (
    SELECT unnest($3::text[])
    UNION ALL
    SELECT state.name FROM interlock.state WHERE $3 IS NULL AND state.kind = $2
)
SELECT coalesce(sum(counted.found), 0)::bigint, coalesce(bool_or(counted.looked_at >= $1), false)
FROM wanted
CROSS JOIN LATERAL (
    SELECT count(*) AS looked_at, count(*) FILTER (WHERE looked_at.queue = {last}) AS found
    FROM (
        SELECT record.queue FROM interlock.record
        WHERE interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
          AND record.state = wanted.state AND {conditions}
        ORDER BY record.created_at DESC, record.id DESC LIMIT $1
    ) AS looked_at
) AS counted
