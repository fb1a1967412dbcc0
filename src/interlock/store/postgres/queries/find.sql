-- The conditions and the order are put in by rows.py, from a fixed set of phrases.
SELECT kind, id, state, version, body, parent, queue, labels, priority, ready_at, deadline_at, chain,
    created_at, updated_at
FROM interlock.record
WHERE {conditions}
ORDER BY created_at {order}, id {order}
LIMIT $1
