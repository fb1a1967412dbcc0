-- Read the ready records, and write the foreseen change of all of them if all have the foreseen shape; in one
-- statement. If they are fewer than wanted, all of them must have been looked at, from the start of the lanes. `at`
-- is NULL where nothing was written; then no record is told, and `nothing` says whether none was ready. This is for
-- a claimer that is alone; in company it locks what it reads (claims.py).
WITH ready AS MATERIALIZED (
    SELECT * FROM interlock.peek_ready($1, $2, $3, $4, $5, $6, $7, $8) WITH ORDINALITY
), shape AS MATERIALIZED (
    SELECT
        coalesce(bool_and(
            state = $12 AND version = $13 AND body::text = $14 AND parent IS NOT DISTINCT FROM $15
            AND queue IS NOT DISTINCT FROM $16 AND labels IS NOT DISTINCT FROM $17::text[] AND priority = $18
            AND deadline_at IS NULL AND result IS NULL
        ) FILTER (WHERE id IS NOT NULL) AND (count(id) = $6 OR $7 = -9223372036854775808)
            AND NOT bool_or(delayed), false) AS foreseen,
        count(id) = 0 AND NOT bool_or(delayed) AS nothing,
        string_agg(id, E'\x1e' ORDER BY id COLLATE "C") AS ids,
        string_agg(id, E'\x1e' ORDER BY ordinality) AS in_order
    FROM ready
), written AS MATERIALIZED (
    SELECT foreseen, nothing, CASE WHEN foreseen AND ($9::text IS NULL OR interlock.stands($9, $10, $11))
        THEN interlock.try_batch($1, NULL, ids, nullif(in_order, ids), NULL, NULL, NULL, $19) END AS at
    FROM shape
)
SELECT ready.id, given, rank, created_s, updated_at, foreseen, nothing, at
FROM written LEFT JOIN ready ON at IS NOT NULL AND ready.id IS NOT NULL
ORDER BY ordinality
