-- Writes a wave of commits, in which no two touch the same record or request: one call, whatever
-- their number. `place` is the number of a commit in the wave, from 0; without places each commit has
-- one change, and they come in order.
--
-- The changes come in the order of their keys, column by column. The records of a batch have much in
-- common, and what is done for each value of each array, here and in the driver, was once a third of all
-- the work. So what all changes share is said once: `shared` has a value for each column. `varied` has the
-- columns in which they differ, each as one text of all values with E'\x1e' between them, '' being NULL.
-- Both have the order
--
--     1 place, 2 turn (position in the commit), 3 kind, 4 expected, 5 state, 6 parent, 7 queue, 8 labels
--     (E'\x1f' between them), 9 priority, 10 ready_at, 11 rank, 12 deadline_at, 13 chain, 14 expected_at (when
--     the expected version was written: a server that has lost its latest writes counts the same again),
--     15 note (shared only)
--
-- with moments in microseconds since 1970. `ids` and `bodies` are texts like that, `notes` has a line
-- for each change, 'null' where there is none, unless all share one. A body that is '', or `bodies` that are NULL, mean that it stays
-- as it is: it need not be sent, nor taken apart, nor checked, and one that is stored apart from its row stays
-- there.
--
-- Moves are compared with the table here (see 0002_enforcement.sql). What shares kind and state with all
-- others, as it mostly does, is looked up once: `sources` are the states that may become this one, '' where
-- it may begin.
--
-- The answer has one row with the time at which it is all true, and one for whatever stands in the way
-- of a commit: 'repeated' (item counts the requests), 'late' (item counts the limits), 'stale' and
-- 'illegal' (item counts the changes).
--
-- Limits of time (`l_`) are needed by who judges; for the others the earliest of them will do.
--
-- Who is `judging` locks everything, finds what stands in the way, and writes the rest. Who is not
-- writes as if nothing did, which is faster. Where that turns out to be wrong, or somebody creates the
-- same record or does the same request just then, it raises serialization_failure, unique_violation or
-- check_violation, and nothing is written.
--
-- Deadlocks: all lock records in the order of their keys, and requests after records, in the order of
-- their ids. (What is there is locked before what is not is created; where that crosses with others, the
-- server ends one of them, which is then done again.)
--
-- The settings pin the plans: look each key up in its index. A plan that was made while a table was
-- small, or by statistics that are out of date, would otherwise stay.
CREATE FUNCTION interlock.write_wave(
    judging boolean,
    not_before timestamptz,
    ids text, bodies text, notes text, shared text[], varied text[],
    f_place integer[], f_kind text[], f_id text[], f_note json[],
    earliest timestamptz, l_place integer[], l_not_after timestamptz[],
    q_place integer[], q_id text[], q_endpoint text[], q_fingerprint text[], q_status integer[],
    q_body bytea[], q_ttl_s double precision[]
)
RETURNS TABLE (
    verdict text, item integer, found bigint, source text, at timestamptz,
    endpoint text, fingerprint text, status integer, body bytea, created_at timestamptz, expires_at timestamptz
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
SET interlock.vouched = 'on'
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := greatest(clock_timestamp(), not_before);
    c_id text[] := string_to_array(ids, E'\x1e');
    c_place integer[] := string_to_array(varied[1], E'\x1e')::integer[];
    c_kind text[] := string_to_array(varied[3], E'\x1e');
    c_expected text[] := string_to_array(varied[4], E'\x1e');
    c_state text[] := string_to_array(varied[5], E'\x1e');
    c_chain text[] := string_to_array(varied[13], E'\x1e');
    c_expected_us bigint[] := string_to_array(varied[14], E'\x1e', '')::bigint[];
    the_place integer := shared[1];
    the_kind text := shared[3];
    the_expected bigint := shared[4];
    the_state text := shared[5];
    the_parent text := shared[6];
    the_queue text := shared[7];
    the_labels text := shared[8];
    the_label_set text[] := coalesce(string_to_array(shared[8], E'\x1f'), '{}');
    the_lane text := concat_ws(E'\x1f', coalesce(shared[7], ''), shared[8]);
    one_lane boolean := varied[7] IS NULL AND varied[8] IS NULL;
    the_priority integer := shared[9];
    the_ready_at timestamptz := timestamptz 'epoch' + shared[10]::bigint * interval '1 microsecond';
    the_rank bigint := shared[11];
    the_deadline_at timestamptz := timestamptz 'epoch' + shared[12]::bigint * interval '1 microsecond';
    the_chain text := shared[13];
    the_expected_at timestamptz := timestamptz 'epoch' + shared[14]::bigint * interval '1 microsecond';
    the_note json := shared[15];
    sources text[];
    versions bigint[];
    moments timestamptz[];
    states text[];
    repeated integer[];
    late integer[];
    stale integer[];
    illegal integer[];
    bad integer[] := '{}';
    number bigint;
    wanted integer := cardinality(c_id);
    changed integer := 0;
    created integer := 0;
BEGIN
    IF judging THEN
        -- A LATERAL subquery that locks cannot be turned into another join: the keys are
        -- locked one after the other, as they come.
        SELECT array_agg(r.version), array_agg(r.state), array_agg(r.updated_at)
        INTO versions, states, moments
        FROM unnest(c_id, c_kind) AS c (id, kind)
        LEFT JOIN LATERAL (
            SELECT record.version, record.state, record.updated_at FROM interlock.record
            WHERE record.id = c.id AND record.kind = coalesce(c.kind, the_kind) FOR UPDATE
        ) AS r ON true;

        -- Only now: a limit may have passed while we waited for a lock.
        moment := greatest(clock_timestamp(), not_before);

        -- Locked, so that a prune cannot remove what a repeat is about to be answered with.
        SELECT coalesce(array_agg(q.item), '{}') INTO repeated
        FROM unnest(q_id) WITH ORDINALITY AS q (id, item)
        CROSS JOIN LATERAL (
            SELECT FROM interlock.request
            WHERE request.id = q.id AND request.expires_at > moment FOR SHARE
        ) AS r;
        SELECT coalesce(array_agg(l.item), '{}') INTO late
        FROM unnest(l_not_after) WITH ORDINALITY AS l (not_after, item)
        WHERE l.not_after < moment;
        SELECT coalesce(array_agg(c.item), '{}') INTO stale
        FROM unnest(c_id, c_expected, versions, c_expected_us, moments) WITH ORDINALITY
            AS c (id, expected, version, expected_us, updated_at, item)
        WHERE coalesce(c.expected::bigint, the_expected) <> coalesce(c.version, 0)
           OR c.updated_at <> coalesce(
               timestamptz 'epoch' + c.expected_us * interval '1 microsecond', the_expected_at
           );
        SELECT coalesce(array_agg(c.item), '{}') INTO illegal
        FROM unnest(c_id, c_kind, c_state, states) WITH ORDINALITY AS c (id, kind, state, source, item)
        WHERE coalesce(c.state, the_state) IS DISTINCT FROM c.source
          AND (SELECT count(*) FROM interlock.path
               WHERE path.kind = coalesce(c.kind, the_kind) AND path.source = coalesce(c.source, '')
                 AND path.target = coalesce(c.state, the_state)) = 0;

        bad := ARRAY(
            SELECT q_place[i] FROM unnest(repeated) AS i
            UNION SELECT l_place[i] FROM unnest(late) AS i
            UNION SELECT coalesce(c_place[i], the_place, i - 1) FROM unnest(stale || illegal) AS i
        );
        wanted := (
            SELECT count(*) FROM unnest(c_id, c_place) WITH ORDINALITY AS c (id, place, item)
            WHERE coalesce(c.place, the_place, c.item - 1) <> ALL (bad)
        );
    END IF;

    IF the_kind IS NOT NULL AND the_state IS NOT NULL THEN
        sources := ARRAY(
            SELECT path.source FROM interlock.path WHERE path.kind = the_kind AND path.target = the_state
        );
    END IF;

    -- What is there. BETWEEN, where = would do: each key is looked up in its index, one after the other as
    -- they come, and a planner that believes the table to be empty is not offered to begin with the table.
    -- Who was faster than us has left another version, which is not changed.
    IF the_expected IS DISTINCT FROM 0 THEN
        UPDATE interlock.record AS r SET
            state = coalesce(c.state, the_state),
            version = r.version + 1,
            body = coalesce(c.body::json, r.body),
            parent = coalesce(c.parent, the_parent),
            queue = coalesce(c.queue, the_queue),
            labels = coalesce(string_to_array(c.labels, E'\x1f'), the_label_set),
            priority = coalesce(c.priority, the_priority),
            ready_at = coalesce(timestamptz 'epoch' + c.ready_us * interval '1 microsecond', the_ready_at),
            deadline_at = coalesce(
                timestamptz 'epoch' + c.deadline_us * interval '1 microsecond', the_deadline_at
            ),
            chain = coalesce(c.chain, the_chain),
            updated_at = moment,
            lane = CASE WHEN one_lane THEN the_lane
                ELSE concat_ws(E'\x1f', coalesce(c.queue, the_queue, ''), coalesce(c.labels, the_labels)) END,
            rank = coalesce(c.rank, the_rank, 0),
            ready = coalesce(coalesce(
                timestamptz 'epoch' + c.ready_us * interval '1 microsecond', the_ready_at
            ) <= moment, false)
        FROM unnest(
            c_id, string_to_array(bodies, E'\x1e', ''), c_place, c_kind, c_expected, c_state,
            string_to_array(varied[6], E'\x1e', ''), string_to_array(varied[7], E'\x1e', ''),
            string_to_array(varied[8], E'\x1e', ''), string_to_array(varied[9], E'\x1e')::integer[],
            string_to_array(varied[10], E'\x1e', '')::bigint[],
            string_to_array(varied[11], E'\x1e', '')::bigint[],
            string_to_array(varied[12], E'\x1e', '')::bigint[], c_chain, c_expected_us
        ) WITH ORDINALITY AS c (
            id, body, place, kind, expected, state, parent, queue, labels, priority, ready_us, rank,
            deadline_us, chain, expected_us, item
        )
        WHERE r.id BETWEEN c.id AND c.id
          AND r.kind BETWEEN coalesce(c.kind, the_kind) AND coalesce(c.kind, the_kind)
          AND r.version = coalesce(c.expected::bigint, the_expected)
          AND r.updated_at = coalesce(
              timestamptz 'epoch' + c.expected_us * interval '1 microsecond', the_expected_at, r.updated_at
          )
          AND (r.state = coalesce(c.state, the_state) OR r.state = ANY (sources) OR sources IS NULL AND (
              SELECT count(*) FROM interlock.path
              WHERE path.kind = r.kind AND path.source = r.state
                AND path.target = coalesce(c.state, the_state)
          ) > 0)
          AND coalesce(c.place, the_place, c.item - 1) <> ALL (bad);
        GET DIAGNOSTICS changed = ROW_COUNT;
    END IF;

    IF the_expected IS NULL OR the_expected = 0 THEN
        INSERT INTO interlock.record (
            kind, id, state, version, body, parent, queue, labels, priority, ready_at, deadline_at,
            chain, created_at, updated_at, lane, rank, ready
        )
        SELECT
            coalesce(c.kind, the_kind), c.id, coalesce(c.state, the_state), 1, c.body::json,
            coalesce(c.parent, the_parent), coalesce(c.queue, the_queue),
            coalesce(string_to_array(c.labels, E'\x1f'), the_label_set),
            coalesce(c.priority, the_priority),
            coalesce(timestamptz 'epoch' + c.ready_us * interval '1 microsecond', the_ready_at),
            coalesce(timestamptz 'epoch' + c.deadline_us * interval '1 microsecond', the_deadline_at),
            coalesce(c.chain, the_chain), moment, moment,
            CASE WHEN one_lane THEN the_lane
                ELSE concat_ws(E'\x1f', coalesce(c.queue, the_queue, ''), coalesce(c.labels, the_labels)) END,
            coalesce(c.rank, the_rank, 0),
            coalesce(coalesce(
                timestamptz 'epoch' + c.ready_us * interval '1 microsecond', the_ready_at
            ) <= moment, false)
        FROM unnest(
            c_id, string_to_array(bodies, E'\x1e'), c_place, c_kind, c_expected, c_state,
            string_to_array(varied[6], E'\x1e', ''), string_to_array(varied[7], E'\x1e', ''),
            string_to_array(varied[8], E'\x1e', ''), string_to_array(varied[9], E'\x1e')::integer[],
            string_to_array(varied[10], E'\x1e', '')::bigint[],
            string_to_array(varied[11], E'\x1e', '')::bigint[],
            string_to_array(varied[12], E'\x1e', '')::bigint[], c_chain
        ) WITH ORDINALITY AS c (
            id, body, place, kind, expected, state, parent, queue, labels, priority, ready_us, rank,
            deadline_us, chain, item
        )
        WHERE coalesce(c.expected::bigint, the_expected) = 0
          AND ('' = ANY (sources) OR sources IS NULL AND (
              SELECT count(*) FROM interlock.path
              WHERE path.kind = coalesce(c.kind, the_kind) AND path.source = ''
                AND path.target = coalesce(c.state, the_state)
          ) > 0)
          AND coalesce(c.place, the_place, c.item - 1) <> ALL (bad);
        GET DIAGNOSTICS created = ROW_COUNT;
    END IF;
    IF changed + created <> wanted THEN
        RAISE serialization_failure;
    END IF;

    IF cardinality(q_id) > 0 THEN
        -- An expired request counts as unknown, and makes room for the new one.
        DELETE FROM interlock.request
        WHERE request.expires_at <= moment AND request.id = ANY (ARRAY(
            SELECT q.id FROM unnest(q_place, q_id) AS q (place, id) WHERE q.place <> ALL (bad)
        ));
        INSERT INTO interlock.request
        SELECT
            q.id, q.endpoint, q.fingerprint, q.status, q.body, moment,
            moment + make_interval(secs => q.ttl_s)
        FROM unnest(q_place, q_id, q_endpoint, q_fingerprint, q_status, q_body, q_ttl_s)
            AS q (place, id, endpoint, fingerprint, status, body, ttl_s)
        WHERE q.place <> ALL (bad)
        ORDER BY q.id;
    END IF;

    -- In the order of the commits, and in each of its changes, then its refusals, which get the
    -- version that the record has.
    number := pg_current_xact_id()::text::bigint + (SELECT meta.xact_offset FROM interlock.meta WHERE meta.one);
    IF cardinality(f_id) = 0 AND c_place IS NULL AND the_place IS NULL THEN
        -- Then that is the order in which they come, and nothing has to be sorted.
        INSERT INTO interlock.journal (xact, at, kind, id, version, note, chain)
        SELECT
            number, moment, coalesce(c.kind, the_kind), c.id,
            coalesce(c.expected::bigint, the_expected) + 1, coalesce(c.note::json, the_note),
            coalesce(c.chain, the_chain)
        FROM unnest(c_id, string_to_array(notes, E'\n', 'null'), c_kind, c_expected, c_chain)
            WITH ORDINALITY AS c (id, note, kind, expected, chain, item)
        WHERE (c.note IS NOT NULL OR the_note IS NOT NULL) AND c.item - 1 <> ALL (bad);
    ELSE
        INSERT INTO interlock.journal (xact, at, kind, id, version, note, chain)
        SELECT number, moment, n.kind, n.id, n.version, n.note, n.chain
        FROM (
            SELECT
                coalesce(c.place, the_place, c.item - 1), 0 AS part, c.turn::bigint,
                coalesce(c.kind, the_kind), c.id, coalesce(c.expected::bigint, the_expected) + 1,
                coalesce(c.note::json, the_note), coalesce(c.chain, the_chain)
            FROM unnest(
                c_id, string_to_array(notes, E'\n', 'null'), c_place, string_to_array(varied[2], E'\x1e'),
                c_kind, c_expected, c_chain
            ) WITH ORDINALITY AS c (id, note, place, turn, kind, expected, chain, item)
            WHERE (c.note IS NOT NULL OR the_note IS NOT NULL)
              AND coalesce(c.place, the_place, c.item - 1) <> ALL (bad)
            UNION ALL
            SELECT f.place, 1, f.turn, f.kind, f.id, coalesce((
                SELECT record.version FROM interlock.record
                WHERE record.id = f.id AND record.kind = f.kind
            ), 0), f.note, ''
            FROM unnest(f_place, f_kind, f_id, f_note) WITH ORDINALITY
                AS f (place, kind, id, note, turn)
            WHERE f.place <> ALL (bad)
        ) AS n (place, part, turn, kind, id, version, note, chain)
        ORDER BY n.place, n.part, n.turn;
    END IF;

    IF NOT judging AND earliest < greatest(clock_timestamp(), not_before) THEN
        RAISE serialization_failure;
    END IF;

    verdict := 'done';
    at := moment;
    RETURN NEXT;
    IF cardinality(bad) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT 'repeated', i, NULL::bigint, NULL::text, moment,
        request.endpoint, request.fingerprint, request.status, request.body,
        request.created_at, request.expires_at
    FROM unnest(repeated) AS i
    CROSS JOIN LATERAL (SELECT * FROM interlock.request WHERE request.id = q_id[i] OFFSET 0) AS request;
    RETURN QUERY
    SELECT v.verdict, v.item, coalesce(versions[v.item], 0), coalesce(states[v.item], ''), moment,
        NULL::text, NULL::text, NULL::integer, NULL::bytea, NULL::timestamptz, NULL::timestamptz
    FROM (
        SELECT 'late', i FROM unnest(late) AS i
        UNION ALL SELECT 'stale', i FROM unnest(stale) AS i
        UNION ALL SELECT 'illegal', i FROM unnest(illegal) AS i
    ) AS v (verdict, item);
END $$;

-- The same with judgement, for who was refused without it: as often as somebody else is faster.
--
-- Not for who holds locks already, as claimers do: each attempt is a subtransaction, and a row that the
-- one locks and the other writes needs a multixact, which costs more than all the rest.
CREATE FUNCTION interlock.judge_wave(
    not_before timestamptz,
    ids text, bodies text, notes text, shared text[], varied text[],
    f_place integer[], f_kind text[], f_id text[], f_note json[],
    earliest timestamptz, l_place integer[], l_not_after timestamptz[],
    q_place integer[], q_id text[], q_endpoint text[], q_fingerprint text[], q_status integer[],
    q_body bytea[], q_ttl_s double precision[]
)
RETURNS TABLE (
    verdict text, item integer, found bigint, source text, at timestamptz,
    endpoint text, fingerprint text, status integer, body bytea, created_at timestamptz, expires_at timestamptz
)
LANGUAGE plpgsql
AS $$
BEGIN
    FOR attempt IN 1..25 LOOP
        BEGIN
            RETURN QUERY SELECT * FROM interlock.write_wave(
                true, not_before, ids, bodies, notes, shared, varied, f_place, f_kind, f_id, f_note,
                earliest, l_place, l_not_after, q_place, q_id, q_endpoint, q_fingerprint, q_status,
                q_body, q_ttl_s
            );
            RETURN;
        EXCEPTION WHEN serialization_failure OR unique_violation OR check_violation THEN
            IF attempt = 25 THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END $$;
