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
        (
            SELECT record.id, record.created_at, {matching} AS matches FROM interlock.kept_live AS record
            WHERE record.deadline_at IS NULL
              AND interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
              AND record.state = wanted.state AND {conditions}
            ORDER BY record.created_at {order}, record.id {order}
            LIMIT {within} + 1
        )
        UNION ALL
        (
            SELECT record.id, record.created_at, {matching} AS matches FROM interlock.kept_live AS record
            WHERE record.deadline_at IS NOT NULL
              AND interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
              AND record.state = wanted.state AND {conditions}
            ORDER BY record.created_at {order}, record.id {order}
            LIMIT {within} + 1
        )
        UNION ALL
        (
            SELECT record.id, record.created_at, {matching} AS matches FROM interlock.kept_ended AS record
            WHERE interlock.stretch(record.kind, record.state) = interlock.stretch($2, wanted.state)
              AND record.state = wanted.state AND {conditions}
            ORDER BY record.created_at {order}, record.id {order}
            LIMIT {within} + 1
        )
    ) AS one
    ORDER BY place
    LIMIT {within} + 1
)
SELECT ending.created_at, ending.id, found.kind, found.id, found.state, found.version, found.body, found.given,
    found.result, found.parent, found.queue, found.labels, found.priority, found.ready_at, found.deadline_at,
    found.created_at, found.updated_at
FROM (VALUES (true)) AS always (there)
LEFT JOIN (
    SELECT looked_at.created_at, looked_at.id FROM looked_at
    WHERE looked_at.place = {within}
      AND EXISTS (SELECT FROM looked_at AS further WHERE further.place > {within})
) AS ending ON true
LEFT JOIN LATERAL (
    SELECT loaded.*
    FROM (
        SELECT coalesce(array_agg(matching.id ORDER BY matching.place), '{}') AS ids
        FROM (
            SELECT looked_at.id, looked_at.place FROM looked_at
            WHERE looked_at.matches AND looked_at.place <= {within}
            ORDER BY looked_at.place LIMIT $1
        ) AS matching
    ) AS page
    CROSS JOIN LATERAL interlock.load_records(array_fill($2::text, ARRAY[cardinality(page.ids)]), page.ids)
        WITH ORDINALITY AS loaded (
            kind, id, state, version, body, given, result, parent, queue, labels, priority, ready_at,
            deadline_at, created_at, updated_at, place
        )
    WHERE loaded.id IS NOT NULL
) AS found ON true
ORDER BY found.place
