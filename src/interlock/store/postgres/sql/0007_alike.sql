-- `write_wave` for the many who change alike: a batch that is claimed, or done, or a single record. It does
-- the same, but says everything once that all share, so that one statement without a choice in it is left:
-- half of what a small commit costs the server is beginning statements and filling variables.
--
-- Each commit has one change and a note, the keys come in order, all are in the same kind, state and version
-- and shall become the same but for their bodies, notes and when they were last written. `ids`, `bodies`
-- ('' or NULL: it stays as it is) and `moments` (when the expected version was written, in microseconds since
-- 1970) have E'\x1e' between them, `notes` is a line for each. `said` is what they share:
--
--     1 kind, 2 expected, 3 state, 4 parent, 5 queue, 6 labels (E'\x1f' between them), 7 priority, 8 ready_at,
--     9 rank, 10 deadline_at, 11 chain, 12 expected_at, 13 note
--
-- Nothing is judged. Where something stands in the way of one of them, serialization_failure is raised and
-- nothing is written.
CREATE FUNCTION interlock.write_alike(
    not_before timestamptz, earliest timestamptz, ids text, bodies text, notes text, moments text, said text[]
)
RETURNS timestamptz
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
SET interlock.vouched = 'on'
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := greatest(clock_timestamp(), not_before);
    keys text[] := string_to_array(ids, E'\x1e');
    the_kind text := said[1];
    the_expected bigint := said[2];
    the_state text := said[3];
    the_labels text[] := coalesce(string_to_array(said[6], E'\x1f'), '{}');
    the_lane text := concat_ws(E'\x1f', coalesce(said[5], ''), said[6]);
    the_priority integer := said[7];
    the_ready_at timestamptz := timestamptz 'epoch' + said[8]::bigint * interval '1 microsecond';
    the_rank bigint := coalesce(said[9]::bigint, 0);
    the_deadline_at timestamptz := timestamptz 'epoch' + said[10]::bigint * interval '1 microsecond';
    the_expected_at timestamptz := timestamptz 'epoch' + said[12]::bigint * interval '1 microsecond';
    the_note json := said[13];
    is_ready boolean := coalesce(the_ready_at <= moment, false);
    changed integer;
BEGIN
    -- The kind is compared so that no index is offered for it: the only way to a record is then by its id,
    -- whatever the planner believes about the table.
    WITH changed AS (
        UPDATE interlock.record AS r SET
            state = the_state,
            version = the_expected + 1,
            body = coalesce(c.body::json, r.body),
            parent = said[4],
            queue = said[5],
            labels = the_labels,
            priority = the_priority,
            ready_at = the_ready_at,
            deadline_at = the_deadline_at,
            chain = said[11],
            updated_at = moment,
            lane = the_lane,
            rank = the_rank,
            ready = is_ready
        FROM unnest(
            keys, string_to_array(bodies, E'\x1e', ''), string_to_array(notes, E'\n'),
            string_to_array(moments, E'\x1e', '')::bigint[]
        ) AS c (id, body, note, expected_us)
        WHERE r.id BETWEEN c.id AND c.id
          AND (r.kind = the_kind) IS TRUE
          AND r.version = the_expected
          AND r.updated_at = coalesce(
              timestamptz 'epoch' + c.expected_us * interval '1 microsecond', the_expected_at, r.updated_at
          )
          AND (r.state = the_state OR r.state = ANY (ARRAY(
              SELECT path.source FROM interlock.path WHERE path.kind = the_kind AND path.target = the_state
          )))
        RETURNING c.id, c.note
    )
    INSERT INTO interlock.journal (xact, at, kind, id, version, note, chain)
    SELECT
        (SELECT pg_current_xact_id()::text::bigint + meta.xact_offset FROM interlock.meta WHERE meta.one),
        moment, the_kind, changed.id, the_expected + 1, coalesce(changed.note::json, the_note), said[11]
    FROM changed;
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed <> cardinality(keys) OR earliest < greatest(clock_timestamp(), not_before) THEN
        RAISE serialization_failure;
    END IF;
    RETURN moment;
END $$;
