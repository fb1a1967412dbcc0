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
        count(id) = 0 AND NOT bool_or(delayed) AS nothing, count(id) AS found, min(updated_at) AS updated_at,
        string_agg(id, E'\x1e' ORDER BY id COLLATE "C") AS ids,
        string_agg(id, E'\x1e' ORDER BY ordinality) AS in_order
    FROM ready
), written AS MATERIALIZED (
    SELECT foreseen, nothing, CASE
        WHEN NOT foreseen OR NOT ($9::text IS NULL OR interlock.stands($9, $10, $11)) THEN NULL
        -- Only one, as an idle claimer finds: it is written without the price of a batch.
        WHEN found = 1 THEN interlock.write_one(
            $1, NULL, said[1], ids, said[2]::bigint, updated_at, said[3], said[14] IS NOT NULL, said[4]::json, NULL,
            NULL, said[5], said[6], string_to_array(said[7], E'\x1f'),
            CASE WHEN said[10] IS NOT NULL
                THEN concat_ws(E'\x1f', coalesce(said[6], ''), said[7], E'\x1d' || said[8]) END,
            said[9]::integer, timestamptz 'epoch' + said[10]::bigint * interval '1 microsecond', said[11]::bigint,
            timestamptz 'epoch' + said[12]::bigint * interval '1 microsecond', said[13]::json, said[16]
        )
        ELSE interlock.try_batch($1, NULL, ids, nullif(in_order, ids), NULL, NULL, NULL, said) END AS at
    FROM shape CROSS JOIN (VALUES ($19::text[])) AS change (said)
)
SELECT ready.id, given, rank, created_s, updated_at, foreseen, nothing, at
FROM written LEFT JOIN ready ON at IS NOT NULL AND ready.id IS NOT NULL
ORDER BY ordinality
