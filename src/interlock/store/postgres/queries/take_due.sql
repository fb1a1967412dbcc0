SELECT moment, delayed, cut,
    kind, id, state, version, body, given, result, parent, queue, labels, priority, ready_at, deadline_at,
    created_at, updated_at
FROM interlock.take_overdue($1, $2, $3, $4)
