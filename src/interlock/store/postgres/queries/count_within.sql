-- How many of the newest so many of each state match, and whether there are more to look at. The number is
-- cut at $1.
WITH wanted (state) AS (
    SELECT unnest($3::text[])
    UNION ALL
    SELECT state.name FROM interlock.state WHERE $3 IS NULL AND state.kind = $2
)
SELECT least(coalesce(sum(counted.found), 0)::bigint, $1::bigint),
    coalesce(bool_or(counted.looked_at >= {within}), false)
FROM wanted
CROSS JOIN LATERAL (
    SELECT count(*) AS looked_at, count(*) FILTER (WHERE looked_at.matches) AS found
    FROM (
        SELECT one.matches FROM (
            (
                SELECT record.created_at, record.id, {matching} AS matches FROM interlock.kept_live AS record
                WHERE record.deadline_at IS NULL
                  AND interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
                  AND record.state = wanted.state AND {conditions}
                ORDER BY record.created_at DESC, record.id DESC
                LIMIT {within}
            )
            UNION ALL
            (
                SELECT record.created_at, record.id, {matching} AS matches FROM interlock.kept_live AS record
                WHERE record.deadline_at IS NOT NULL
                  AND interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
                  AND record.state = wanted.state AND {conditions}
                ORDER BY record.created_at DESC, record.id DESC
                LIMIT {within}
            )
            UNION ALL
            (
                SELECT record.created_at, record.id, {matching} AS matches FROM interlock.kept_ended AS record
                WHERE interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
                  AND record.state = wanted.state AND {conditions}
                ORDER BY record.created_at DESC, record.id DESC
                LIMIT {within}
            )
        ) AS one
        ORDER BY one.created_at DESC, one.id DESC LIMIT {within}
    ) AS looked_at
) AS counted
