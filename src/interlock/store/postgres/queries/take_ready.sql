SELECT id, state, version, body, given, result, parent, queue, labels, priority, rank, deadline_at, created_s,
    updated_at, moment, delayed, cut
FROM interlock.take_ready($1, $2, $3, $4, $5, $6, $7, $8, $9)
