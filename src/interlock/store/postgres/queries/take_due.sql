SELECT moment, delayed, cut,
    kind, id, state, version, body, parent, queue, labels, priority, ready_at, deadline_at,
    created_at, updated_at
FROM interlock.take_due($1, $2, $3, $4)
