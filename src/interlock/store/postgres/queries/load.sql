SELECT kind, id, state, version, body, given, result, parent, queue, labels, priority, ready_at, deadline_at,
    created_at, updated_at
FROM interlock.load_records($1, $2)
