-- `write_wave` of 0010_handlers.sql on the tables of today, with three more columns, of which both lists may be
-- without:
--
--     17 result ('-' for none; NULL leaves what is there), 18 given, 19 'end' where a record has ended and waits
--     for nothing, so that it is moved to `ended`
--
-- A record that has ended is lifted into `live` before it is changed, by who is judging: who is not does not
-- find it.
CREATE OR REPLACE FUNCTION interlock.write_wave(
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
    c_note text[] := string_to_array(notes, E'\n', 'null');
    c_place integer[] := string_to_array(varied[1], E'\x1e')::integer[];
    c_kind text[] := string_to_array(varied[3], E'\x1e');
    c_expected text[] := string_to_array(varied[4], E'\x1e');
    c_state text[] := string_to_array(varied[5], E'\x1e');
    c_expected_us bigint[] := string_to_array(varied[14], E'\x1e', '')::bigint[];
    the_place integer := shared[1];
    the_kind text := shared[3];
    the_expected bigint := shared[4];
    the_state text := shared[5];
    the_parent text := shared[6];
    the_queue text := shared[7];
    the_labels text := shared[8];
    the_handler text := shared[16];
    the_priority integer := shared[9];
    the_ready_at timestamptz := timestamptz 'epoch' + shared[10]::bigint * interval '1 microsecond';
    the_rank bigint := shared[11];
    the_deadline_at timestamptz := timestamptz 'epoch' + shared[12]::bigint * interval '1 microsecond';
    the_expected_at timestamptz := timestamptz 'epoch' + shared[14]::bigint * interval '1 microsecond';
    the_note json := shared[15];
    the_result text := shared[17];
    the_given text := shared[18];
    the_end text := shared[19];
    sources text[];
    versions bigint[];
    moments timestamptz[];
    states text[];
    ended_at tid[];
    repeated integer[];
    late integer[];
    stale integer[];
    illegal integer[];
    bad integer[] := '{}';
    longs integer[] := '{}';
    packing boolean;
    number bigint;
    mark bytea;
    entry bigint;
    lifted integer := 0;
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
            SELECT live.version, live.state, live.updated_at FROM interlock.live
            WHERE live.id = c.id AND live.kind = coalesce(c.kind, the_kind) FOR UPDATE
        ) AS r ON true;

        -- What is not there may have ended: looked up only now, when nothing can go there any more.
        IF array_position(versions, NULL) IS NOT NULL THEN
            SELECT array_agg(coalesce(c.version, e.version)), array_agg(coalesce(c.state, e.state)),
                array_agg(coalesce(c.updated_at, e.updated_at)), array_agg(e.place),
                count(*) FILTER (WHERE e.missing)
            INTO versions, states, moments, ended_at, lifted
            FROM unnest(c_id, c_kind, versions, states, moments) AS c (id, kind, version, state, updated_at)
            LEFT JOIN LATERAL (
                SELECT e.version, e.state, e.updated_at, e.place, e.version IS NULL AS missing
                FROM interlock.spec AS s
                LEFT JOIN LATERAL (
                    SELECT e.version, e.state, e.updated_at, e.ctid AS place FROM interlock.ended AS e
                    WHERE interlock.stretch(e.kind, e.state) = ANY (
                        (SELECT k.stretches FROM interlock.kind AS k WHERE k.name = s.kind)::bigint[]
                    ) AND e.created_at = s.created_at AND e.id = s.id AND (e.kind = s.kind) IS TRUE
                ) AS e ON true
                WHERE c.version IS NULL AND s.id = c.id AND s.kind = coalesce(c.kind, the_kind)
            ) AS e ON true;
            IF lifted > 0 THEN
                RAISE serialization_failure;  -- it was being lifted by another writer
            END IF;
        END IF;

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

        -- Lift what has ended and is to be changed. Where it is no longer there, it is missed below.
        IF ended_at IS NOT NULL THEN
            WITH lifted AS (
                DELETE FROM interlock.ended AS e WHERE e.ctid = ANY (ARRAY(
                    SELECT c.ended_at FROM unnest(ended_at, c_place) WITH ORDINALITY
                        AS c (ended_at, place, item)
                    WHERE c.ended_at IS NOT NULL AND coalesce(c.place, the_place, c.item - 1) <> ALL (bad)
                ))
                RETURNING e.*
            )
            INSERT INTO interlock.live (
                created_at, updated_at, version, priority, kind, id, state, queue, parent, labels, trail, body,
                result
            )
            SELECT l.created_at, l.updated_at, l.version, l.priority, l.kind, l.id, l.state, l.queue, l.parent,
                l.labels, l.trail, l.body, l.result
            FROM lifted AS l;
        END IF;
    END IF;

    IF the_kind IS NOT NULL AND the_state IS NOT NULL THEN
        sources := ARRAY(
            SELECT path.source FROM interlock.path WHERE path.kind = the_kind AND path.target = the_state
        );
    END IF;

    -- Commits of one change each, in order, of records of one kind in one version, are told in one row.
    number := pg_current_xact_id()::text::bigint + (SELECT meta.xact_offset FROM interlock.meta WHERE meta.one);
    mark := int8send(number);
    packing := the_kind IS NOT NULL AND the_expected IS NOT NULL AND c_place IS NULL AND the_place IS NULL
        AND cardinality(f_id) = 0 AND cardinality(c_id) > 0;

    -- What is there. BETWEEN, where = would do: each key is looked up in its index, one after the other as
    -- they come, and a planner that believes the table to be empty is not offered to begin with the table.
    -- Who was faster than us has left another version, which is not changed.
    IF the_expected IS DISTINCT FROM 0 AND cardinality(c_id) > 0 THEN
        WITH c AS MATERIALIZED (
            SELECT c.id, c.body::json AS body, coalesce(c.kind, the_kind) AS kind,
                coalesce(c.expected::bigint, the_expected) AS expected,
                coalesce(c.state, the_state) AS state,
                coalesce(c.parent, the_parent) AS parent,
                coalesce(c.queue, the_queue) AS queue,
                string_to_array(coalesce(c.labels, the_labels), E'\x1f') AS labels,
                coalesce(c.priority, the_priority) AS priority,
                coalesce(timestamptz 'epoch' + c.ready_us * interval '1 microsecond', the_ready_at) AS ready_at,
                coalesce(c.rank, the_rank) AS rank,
                coalesce(
                    timestamptz 'epoch' + c.deadline_us * interval '1 microsecond', the_deadline_at
                ) AS deadline_at,
                CASE WHEN c.ready_us IS NOT NULL OR the_ready_at IS NOT NULL THEN concat_ws(
                    E'\x1f', coalesce(c.queue, the_queue, ''), coalesce(c.labels, the_labels),
                    E'\x1d' || coalesce(c.handler, the_handler)
                ) END AS lane,
                coalesce(
                    timestamptz 'epoch' + c.expected_us * interval '1 microsecond', the_expected_at
                ) AS expected_at,
                coalesce(c.result, the_result) AS result,
                coalesce(c.ends, the_end) IS NOT NULL AS ends,
                packing AND (c.note IS NOT NULL OR the_note IS NOT NULL) AS packed,
                c.item
            FROM unnest(
                c_id, string_to_array(bodies, E'\x1e', ''), c_place, c_kind, c_expected, c_state,
                string_to_array(varied[6], E'\x1e', ''), string_to_array(varied[7], E'\x1e', ''),
                string_to_array(varied[8], E'\x1e', ''), string_to_array(varied[9], E'\x1e')::integer[],
                string_to_array(varied[10], E'\x1e', '')::bigint[],
                string_to_array(varied[11], E'\x1e', '')::bigint[],
                string_to_array(varied[12], E'\x1e', '')::bigint[], c_expected_us,
                string_to_array(varied[16], E'\x1e', ''), string_to_array(varied[17], E'\x1e', ''),
                string_to_array(varied[19], E'\x1e', ''), c_note
            ) WITH ORDINALITY AS c (
                id, body, place, kind, expected, state, parent, queue, labels, priority, ready_us, rank,
                deadline_us, expected_us, handler, result, ends, note, item
            )
            WHERE coalesce(c.place, the_place, c.item - 1) <> ALL (bad)
        ), gone AS (
            DELETE FROM interlock.live AS r USING c
            WHERE c.ends
              AND r.id BETWEEN c.id AND c.id
              AND (r.kind = c.kind) IS TRUE
              AND r.version = c.expected
              AND r.updated_at = coalesce(c.expected_at, r.updated_at)
              AND (r.state = c.state OR r.state = ANY (sources) OR sources IS NULL AND (
                  SELECT count(*) FROM interlock.path
                  WHERE path.kind = r.kind AND path.source = r.state AND path.target = c.state
              ) > 0)
            RETURNING r.created_at, c.priority, c.kind, c.id, c.state, c.queue, c.parent, c.labels, c.expected,
                CASE WHEN c.packed AND length(r.trail) < 256 THEN r.trail || mark ELSE r.trail END AS trail,
                coalesce(c.body, r.body) AS body,
                CASE WHEN c.result = '-' THEN NULL ELSE coalesce(c.result::json, r.result) END AS result,
                c.packed, c.item
        ), moved AS (
            INSERT INTO interlock.ended (
                created_at, updated_at, version, priority, kind, id, state, queue, parent, labels, trail,
                body, result
            )
            SELECT g.created_at, moment, g.expected + 1, g.priority, g.kind, g.id, g.state, g.queue, g.parent,
                g.labels, g.trail, g.body, g.result
            FROM gone AS g
        ), moving AS (
            UPDATE interlock.live AS r SET
                state = c.state,
                version = c.expected + 1,
                body = coalesce(c.body, r.body),
                result = CASE WHEN c.result = '-' THEN NULL ELSE coalesce(c.result::json, r.result) END,
                parent = c.parent,
                queue = c.queue,
                labels = c.labels,
                priority = c.priority,
                ready_at = c.ready_at,
                rank = c.rank,
                lane = c.lane,
                ready = coalesce(c.ready_at <= moment, false),
                deadline_at = c.deadline_at,
                updated_at = moment,
                trail = CASE WHEN c.packed AND length(r.trail) < 256 THEN r.trail || mark ELSE r.trail END
            FROM c
            WHERE NOT c.ends
              AND r.id BETWEEN c.id AND c.id
              AND (r.kind = c.kind) IS TRUE
              AND r.version = c.expected
              AND r.updated_at = coalesce(c.expected_at, r.updated_at)
              AND (r.state = c.state OR r.state = ANY (sources) OR sources IS NULL AND (
                  SELECT count(*) FROM interlock.path
                  WHERE path.kind = r.kind AND path.source = r.state AND path.target = c.state
              ) > 0)
            RETURNING r.trail, c.packed, c.item
        )
        SELECT count(*), coalesce(array_agg(m.item) FILTER (
            WHERE m.packed AND substr(m.trail, length(m.trail) - 7) <> mark
        ), '{}')
        INTO changed, longs
        FROM (
            SELECT g.trail, g.packed, g.item FROM gone AS g
            UNION ALL SELECT m.trail, m.packed, m.item FROM moving AS m
        ) AS m;
    END IF;

    IF (the_expected IS NULL OR the_expected = 0) AND cardinality(c_id) > 0 THEN
        WITH c AS MATERIALIZED (
            SELECT coalesce(c.kind, the_kind) AS kind, c.id, coalesce(c.state, the_state) AS state,
                c.body::json AS body, coalesce(c.parent, the_parent) AS parent,
                coalesce(c.queue, the_queue) AS queue,
                string_to_array(coalesce(c.labels, the_labels), E'\x1f') AS labels,
                coalesce(c.priority, the_priority) AS priority,
                coalesce(timestamptz 'epoch' + c.ready_us * interval '1 microsecond', the_ready_at) AS ready_at,
                coalesce(c.rank, the_rank) AS rank,
                coalesce(
                    timestamptz 'epoch' + c.deadline_us * interval '1 microsecond', the_deadline_at
                ) AS deadline_at,
                CASE WHEN c.ready_us IS NOT NULL OR the_ready_at IS NOT NULL THEN concat_ws(
                    E'\x1f', coalesce(c.queue, the_queue, ''), coalesce(c.labels, the_labels),
                    E'\x1d' || coalesce(c.handler, the_handler)
                ) END AS lane,
                coalesce(c.given, the_given)::json AS given,
                nullif(coalesce(c.result, the_result), '-')::json AS result,
                coalesce(c.ends, the_end) IS NOT NULL AS ends,
                CASE WHEN packing AND (c.note IS NOT NULL OR the_note IS NOT NULL) THEN mark ELSE '' END AS trail
            FROM unnest(
                c_id, string_to_array(bodies, E'\x1e'), c_place, c_kind, c_expected, c_state,
                string_to_array(varied[6], E'\x1e', ''), string_to_array(varied[7], E'\x1e', ''),
                string_to_array(varied[8], E'\x1e', ''), string_to_array(varied[9], E'\x1e')::integer[],
                string_to_array(varied[10], E'\x1e', '')::bigint[],
                string_to_array(varied[11], E'\x1e', '')::bigint[],
                string_to_array(varied[12], E'\x1e', '')::bigint[], string_to_array(varied[16], E'\x1e', ''),
                string_to_array(varied[17], E'\x1e', ''), string_to_array(varied[18], E'\x1e', ''),
                string_to_array(varied[19], E'\x1e', ''), c_note
            ) WITH ORDINALITY AS c (
                id, body, place, kind, expected, state, parent, queue, labels, priority, ready_us, rank,
                deadline_us, handler, result, given, ends, note, item
            )
            WHERE coalesce(c.expected::bigint, the_expected) = 0
              AND ('' = ANY (sources) OR sources IS NULL AND (
                  SELECT count(*) FROM interlock.path
                  WHERE path.kind = coalesce(c.kind, the_kind) AND path.source = ''
                    AND path.target = coalesce(c.state, the_state)
              ) > 0)
              AND coalesce(c.place, the_place, c.item - 1) <> ALL (bad)
        ), specified AS (
            INSERT INTO interlock.spec (created_at, kind, id, given)
            SELECT moment, c.kind, c.id, c.given FROM c
        ), living AS (
            INSERT INTO interlock.live (
                created_at, updated_at, version, rank, ready_at, deadline_at, priority, ready, kind, id, state,
                lane, queue, parent, labels, trail, body, result
            )
            SELECT moment, moment, 1, c.rank, c.ready_at, c.deadline_at, c.priority,
                coalesce(c.ready_at <= moment, false), c.kind, c.id, c.state, c.lane, c.queue, c.parent,
                c.labels, c.trail, c.body, c.result
            FROM c WHERE NOT c.ends
        ), ending AS (
            INSERT INTO interlock.ended (
                created_at, updated_at, version, priority, kind, id, state, queue, parent, labels, trail, body,
                result
            )
            SELECT moment, moment, 1, c.priority, c.kind, c.id, c.state, c.queue, c.parent, c.labels, c.trail,
                c.body, c.result
            FROM c WHERE c.ends
        )
        SELECT count(*) INTO created FROM c;
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
    IF packing THEN
        IF notes IS NOT NULL OR the_note IS NOT NULL THEN
            entry := nextval('interlock.journal_entry_seq');
            INSERT INTO interlock.journal_packed (xact, entry, at, version, members, kind, note, ids, notes)
            SELECT number, entry, moment, the_expected + 1, count(m.id), the_kind, the_note,
                string_agg(coalesce(m.id, ''), E'\x1e' ORDER BY m.item),
                CASE WHEN the_note IS NULL THEN notes END
            FROM (
                SELECT c.item, CASE
                    WHEN (c.note IS NOT NULL OR the_note IS NOT NULL) AND c.item - 1 <> ALL (bad)
                        AND c.item <> ALL (longs)
                    THEN c.id END AS id
                FROM unnest(c_id, c_note) WITH ORDINALITY AS c (id, note, item)
            ) AS m
            HAVING count(m.id) > 0;
            INSERT INTO interlock.journal_single (xact, entry, at, kind, id, version, note)
            OVERRIDING SYSTEM VALUE
            SELECT number, entry + i - 1, moment, the_kind, c_id[i], the_expected + 1,
                coalesce(the_note, c_note[i]::json)
            FROM unnest(longs) AS i;
        END IF;
    ELSE
        INSERT INTO interlock.journal_single (xact, at, kind, id, version, note)
        SELECT number, moment, n.kind, n.id, n.version, n.note
        FROM (
            SELECT
                coalesce(c.place, the_place, c.item - 1), 0 AS part, c.turn::bigint,
                coalesce(c.kind, the_kind), c.id, coalesce(c.expected::bigint, the_expected) + 1,
                coalesce(c.note::json, the_note)
            FROM unnest(
                c_id, c_note, c_place, string_to_array(varied[2], E'\x1e'), c_kind, c_expected
            ) WITH ORDINALITY AS c (id, note, place, turn, kind, expected, item)
            WHERE (c.note IS NOT NULL OR the_note IS NOT NULL)
              AND coalesce(c.place, the_place, c.item - 1) <> ALL (bad)
            UNION ALL
            SELECT f.place, 1, f.turn, f.kind, f.id, coalesce((
                SELECT live.version FROM interlock.live WHERE live.id = f.id AND live.kind = f.kind
            ), (
                SELECT e.version FROM interlock.spec AS s
                CROSS JOIN LATERAL (
                    SELECT e.version FROM interlock.ended AS e
                    WHERE interlock.stretch(e.kind, e.state) = ANY (
                        (SELECT k.stretches FROM interlock.kind AS k WHERE k.name = s.kind)::bigint[]
                    ) AND e.created_at = s.created_at AND e.id = s.id AND (e.kind = s.kind) IS TRUE
                ) AS e
                WHERE s.id = f.id AND s.kind = f.kind
            ), 0), f.note
            FROM unnest(f_place, f_kind, f_id, f_note) WITH ORDINALITY
                AS f (place, kind, id, note, turn)
            WHERE f.place <> ALL (bad)
        ) AS n (place, part, turn, kind, id, version, note)
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

-- The calls in them were planned again each time.
ALTER FUNCTION interlock.try_commits SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION interlock.judge_commits SET plan_cache_mode = force_generic_plan;
