-- The same as find.sql for who asks for a queue, or for labels of which there are too many sets: of the next
-- so many in all states together, those that match. Each row begins with where the looking ended: null when
-- nothing is left. There is a row for that also where nothing matches.
WITH wanted (state) AS (
    SELECT unnest($3::text[])
    UNION ALL
    SELECT state.name FROM interlock.state WHERE $3 IS NULL AND state.kind = $2
), looked_at AS MATERIALIZED (
    SELECT one.id, one.created_at, one.matches,
        row_number() OVER (ORDER BY one.created_at {order}, one.id {order}) AS place
    FROM wanted
    CROSS JOIN LATERAL (
        SELECT record.id, record.created_at, {matching} AS matches
        FROM interlock.record
        WHERE interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
          AND record.state = wanted.state AND {conditions}
        ORDER BY record.created_at {order}, record.id {order}
        LIMIT {within} + 1
    ) AS one
    ORDER BY place
    LIMIT {within} + 1
)
SELECT ending.created_at, ending.id, found.kind, found.id, found.state, version, body, parent, queue, labels,
    priority, ready_at, deadline_at, found.created_at, updated_at
FROM (VALUES (true)) AS always (there)
LEFT JOIN (
    SELECT looked_at.created_at, looked_at.id FROM looked_at
    WHERE looked_at.place = {within}
      AND EXISTS (SELECT FROM looked_at AS further WHERE further.place > {within})
) AS ending ON true
LEFT JOIN LATERAL (
    SELECT record.*, looked_at.place
    FROM looked_at JOIN interlock.record ON record.kind = $2 AND record.id = looked_at.id
    WHERE looked_at.matches AND looked_at.place <= {within}
    ORDER BY looked_at.place
    LIMIT $1
) AS found ON true
ORDER BY found.place
