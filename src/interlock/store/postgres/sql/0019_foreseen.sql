-- Reads the ready records, and writes the foreseen change of all of them if all have the foreseen shape. If they are
-- fewer than wanted, all of them must have been looked at, from the start of the lanes. `at` is NULL where nothing
-- was written; then no record is told, and `nothing` says whether none was ready. A claimer that is not alone locks
-- what it reads. `said` is the change, as in 0014_batch.sql.
--
-- It was a statement of the program before. There it was planned for each claim, which took longer than to carry it
-- out; it reads no table itself, so that one plan fits always.
CREATE FUNCTION interlock.claim_foreseen(
    alone boolean, not_before timestamptz, of_kind text, known text[], queues text[], has text[], most integer,
    first bigint, after text, guard_kind text, guard_id text, guard_states text[],
    its_state text, its_version bigint, its_body text, its_parent text, its_queue text, its_labels text[],
    its_priority integer, said text[]
)
RETURNS TABLE (
    id text, given json, rank bigint, created_s double precision, updated_at timestamptz, foreseen boolean,
    nothing boolean, at timestamptz
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH ready AS MATERIALIZED (
        SELECT * FROM interlock.peek_ready(not_before, of_kind, known, queues, has, most, first, after)
            WITH ORDINALITY
        WHERE alone
        UNION ALL
        SELECT * FROM interlock.take_ready(not_before, of_kind, known, queues, has, most, most * 2, first, after)
            WITH ORDINALITY
        WHERE NOT alone
    ), shape AS MATERIALIZED (
        SELECT
            coalesce(bool_and(
                r.state = its_state AND r.version = its_version AND r.body::text = its_body
                AND r.parent IS NOT DISTINCT FROM its_parent AND r.queue IS NOT DISTINCT FROM its_queue
                AND r.labels IS NOT DISTINCT FROM its_labels AND r.priority = its_priority
                AND r.deadline_at IS NULL AND r.result IS NULL
            ) FILTER (WHERE r.id IS NOT NULL) AND (count(r.id) = most OR first = -9223372036854775808)
                AND NOT bool_or(r.delayed), false) AS foreseen,
            count(r.id) = 0 AND NOT bool_or(r.delayed) AS nothing,
            count(r.id) AS found,
            min(r.updated_at) AS updated_at,
            string_agg(r.id, E'\x1e' ORDER BY r.id COLLATE "C") AS ids,
            string_agg(r.id, E'\x1e' ORDER BY r.ordinality) AS in_order
        FROM ready AS r
    ), written AS MATERIALIZED (
        SELECT s.foreseen, s.nothing, CASE
            WHEN NOT s.foreseen THEN NULL
            WHEN NOT (guard_kind IS NULL OR interlock.stands(guard_kind, guard_id, guard_states)) THEN NULL
            -- Only one, as an idle claimer finds: it is written without the price of a batch.
            WHEN s.found = 1 THEN interlock.write_one(
                not_before, NULL, said[1], s.ids, said[2]::bigint, s.updated_at, said[3], said[14] IS NOT NULL,
                said[4]::json, NULL, NULL, said[5], said[6], string_to_array(said[7], E'\x1f'),
                CASE WHEN said[10] IS NOT NULL
                    THEN concat_ws(E'\x1f', coalesce(said[6], ''), said[7], E'\x1d' || said[8]) END,
                said[9]::integer, timestamptz 'epoch' + said[10]::bigint * interval '1 microsecond',
                said[11]::bigint, timestamptz 'epoch' + said[12]::bigint * interval '1 microsecond',
                said[13]::json, said[16]
            )
            ELSE interlock.try_batch(
                not_before, NULL, s.ids, nullif(s.in_order, s.ids), NULL, NULL, NULL, said
            ) END AS at
        FROM shape AS s
    )
    SELECT r.id, r.given, r.rank, r.created_s, r.updated_at, w.foreseen, w.nothing, w.at
    FROM written AS w LEFT JOIN ready AS r ON w.at IS NOT NULL AND r.id IS NOT NULL
    ORDER BY r.ordinality;
END $$;
