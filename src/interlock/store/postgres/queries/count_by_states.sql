SELECT count(*) FROM (
    SELECT FROM unnest($2::text[]) AS wanted (state)
    CROSS JOIN LATERAL (
        SELECT FROM interlock.record WHERE record.state = wanted.state AND {conditions} LIMIT $1
    ) AS found
    LIMIT $1
) AS counted
