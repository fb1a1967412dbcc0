SELECT kind, id, state, version, body, parent, queue, labels, priority, ready_at, deadline_at,
    created_at, updated_at
FROM interlock.load($1, $2)
