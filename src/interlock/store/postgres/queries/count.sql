-- The same as find.sql, counted.
WITH wanted (state) AS (
    SELECT unnest($3::text[])
    UNION ALL
    SELECT state.name FROM interlock.state WHERE $3 IS NULL AND state.kind = $2
)
SELECT count(*) FROM (
    SELECT FROM wanted
    CROSS JOIN LATERAL (
        SELECT 1 FROM interlock.kept_live AS record
        WHERE record.deadline_at IS NULL
          AND interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
          AND record.state = wanted.state AND {conditions}
        UNION ALL
        SELECT 1 FROM interlock.kept_live AS record
        WHERE record.deadline_at IS NOT NULL
          AND interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
          AND record.state = wanted.state AND {conditions}
        UNION ALL
        SELECT 1 FROM interlock.kept_ended AS record
        WHERE interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
          AND record.state = wanted.state AND {conditions}
        LIMIT $1
    ) AS found
    LIMIT $1
) AS counted
