-- The same for some states: each has its own stretch of the index, and the stretches are merged.
SELECT found.*
FROM unnest($2::text[]) AS wanted (state)
CROSS JOIN LATERAL (
    SELECT kind, id, record.state, version, body, parent, queue, labels, priority, ready_at, deadline_at, chain,
        created_at, updated_at
    FROM interlock.record
    WHERE record.state = wanted.state AND {conditions}
    ORDER BY created_at {order}, id {order}
    LIMIT $1
) AS found
ORDER BY found.created_at {order}, found.id {order}
LIMIT $1
