SELECT id, state, version, body, given, result, parent, queue, labels, priority, rank, deadline_at, created_s,
    updated_at, moment, delayed, cut,
    CASE WHEN moment IS NOT NULL THEN $9::text IS NULL OR interlock.stands($9, $10, $11) END AS allowed
FROM interlock.peek_ready($1, $2, $3, $4, $5, $6, $7, $8)
