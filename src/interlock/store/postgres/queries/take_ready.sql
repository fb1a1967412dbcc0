SELECT id, state, version, body, given, result, parent, queue, labels, priority, rank, deadline_at, created_s,
    updated_at, moment, delayed, cut,
    CASE WHEN moment IS NOT NULL THEN $10::text IS NULL OR interlock.stands($10, $11, $12) END AS allowed
FROM interlock.take_ready($1, $2, $3, $4, $5, $6, $7, $8, $9)
