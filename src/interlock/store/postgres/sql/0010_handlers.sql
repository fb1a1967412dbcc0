-- Records may need a handler, which only some claimers have: it is the last part of their lane, behind
-- E'\x1d', so that a claim finds the heads of what its claimer can execute and never passes what it cannot.
-- Programs of an earlier version say no handler, neither in what they write nor when they claim: what they
-- release is in a lane for everybody, and they are given whatever is ready, as before.

-- The lanes of these queues in which something is ready and which need nothing but what the claimer `has`:
-- its labels, and its handlers behind E'\x1d' each; E'\x1d' alone stands for all handlers. Whoever can
-- name them all does (`known`), and each is looked up; one alone need not be. Else one look into the index
-- jumps from lane to lane. Without labels and handler a lane is called like its queue; all others of the
-- queue follow its separator. The settings that pin its plans are those of its callers.
CREATE FUNCTION interlock.lanes_of(of_kind text, known text[], queues text[], has text[])
RETURNS text[]
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    everything boolean := E'\x1d' = ANY (has);
BEGIN
    IF known IS NOT NULL THEN
        RETURN ARRAY(
            SELECT k.lane FROM unnest(known) AS k (lane)
            CROSS JOIN LATERAL (
                SELECT FROM interlock.record AS r
                WHERE r.kind = of_kind AND r.lane = k.lane AND r.ready LIMIT 1
            ) AS found
        );
    END IF;
    RETURN ARRAY(
        WITH RECURSIVE lane AS (
            SELECT q.queue, q.queue COLLATE "C" AS name FROM (SELECT DISTINCT unnest(queues)) AS q (queue)
            UNION ALL
            SELECT lane.queue, next.name
            FROM lane
            CROSS JOIN LATERAL (
                SELECT r.lane AS name FROM interlock.record AS r
                WHERE r.kind = of_kind AND r.ready
                  AND r.lane > greatest(lane.name, lane.queue || E'\x1f' COLLATE "C")
                ORDER BY r.lane LIMIT 1
            ) AS next
            WHERE starts_with(next.name, lane.queue || E'\x1f')
        )
        SELECT lane.name FROM lane
        WHERE (string_to_array(
            CASE WHEN everything THEN regexp_replace(lane.name, E'\x1d.*', E'\x1d') ELSE lane.name END, E'\x1f'
        ))[2:] <@ has
          AND (lane.name <> lane.queue OR (
              SELECT count(*) FROM (
                  SELECT FROM interlock.record AS r
                  WHERE r.kind = of_kind AND r.lane = lane.name AND r.ready LIMIT 1
              ) AS found
          ) > 0)
    );
END $$;

-- `take_ready` of 0004_claim.sql, for claimers that say which handlers they have.
CREATE FUNCTION interlock.take_ready(
    not_before timestamptz, of_kind text, known text[], queues text[], has text[], most integer, reach integer
)
RETURNS TABLE (
    id text, state text, version bigint, body json, parent text, queue text, labels text[],
    priority integer, rank bigint, deadline_at timestamptz, chain text,
    created_s double precision, updated_at timestamptz, moment timestamptz, delayed boolean, cut boolean
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := greatest(clock_timestamp(), not_before);
    waiting boolean;
    lanes text[] := CASE WHEN cardinality(known) = 1 THEN known
        ELSE interlock.lanes_of(of_kind, known, queues, has) END;
BEGIN
    waiting := (
        SELECT record.ready_at <= now FROM interlock.record
        WHERE record.kind = of_kind AND record.ready_at IS NOT NULL AND NOT record.ready
        ORDER BY record.ready_at LIMIT 1
    );

    -- One lane, as in most systems: the lock goes along the index and stops when there is enough.
    IF cardinality(lanes) = 1 THEN
        RETURN QUERY
        SELECT r.id, r.state, r.version, r.body, r.parent, r.queue, nullif(r.labels, '{}'), r.priority,
            r.rank, r.deadline_at, nullif(r.chain, ''),
            date_part('epoch', r.created_at), nullif(r.updated_at, r.created_at),
            NULL::timestamptz, NULL::boolean, NULL::boolean
        FROM interlock.record AS r
        WHERE r.kind = of_kind AND r.lane = lanes[1] AND r.ready
        ORDER BY r.rank, r.id LIMIT most FOR UPDATE SKIP LOCKED;
        moment := now;
        delayed := coalesce(waiting, false);
        cut := false;
        RETURN NEXT;
        RETURN;
    END IF;

    -- Several: the heads of the lanes are merged first, so that no more is locked than is taken.
    RETURN QUERY
    WITH heads AS MATERIALIZED (
        SELECT head.id, head.rank
        FROM unnest(lanes) AS l (lane)
        CROSS JOIN LATERAL (
            SELECT r.id, r.rank FROM interlock.record AS r
            WHERE r.kind = of_kind AND r.lane = l.lane AND r.ready
            ORDER BY r.rank, r.id LIMIT reach
        ) AS head
    ), taken AS (
        -- The lock comes after the sort and before the limit.
        SELECT r.* FROM (SELECT heads.id, heads.rank FROM heads ORDER BY heads.rank, heads.id) AS head
        CROSS JOIN LATERAL (
            SELECT r.id, r.state, r.version, r.body, r.parent, r.queue, nullif(r.labels, '{}'), r.priority,
                r.rank, r.deadline_at, nullif(r.chain, ''),
                date_part('epoch', r.created_at), nullif(r.updated_at, r.created_at)
            FROM interlock.record AS r
            WHERE r.id = head.id AND r.kind = of_kind AND r.ready AND r.rank = head.rank
            FOR UPDATE SKIP LOCKED
        ) AS r
        LIMIT most
    )
    SELECT taken.*, NULL::timestamptz, NULL::boolean, NULL::boolean FROM taken
    UNION ALL
    SELECT NULL::text, NULL::text, NULL::bigint, NULL::json, NULL::text, NULL::text, NULL::text[],
        NULL::integer, NULL::bigint, NULL::timestamptz, NULL::text, NULL::double precision, NULL::timestamptz,
        now, coalesce(waiting, false), (SELECT count(*) >= reach FROM heads);
END $$;

-- `peek_ready` of 0004_claim.sql, likewise.
CREATE FUNCTION interlock.peek_ready(
    not_before timestamptz, of_kind text, known text[], queues text[], has text[], most integer
)
RETURNS TABLE (
    id text, state text, version bigint, body json, parent text, queue text, labels text[],
    priority integer, rank bigint, deadline_at timestamptz, chain text,
    created_s double precision, updated_at timestamptz, moment timestamptz, delayed boolean, cut boolean
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := greatest(clock_timestamp(), not_before);
    lanes text[] := CASE WHEN cardinality(known) = 1 THEN known
        ELSE interlock.lanes_of(of_kind, known, queues, has) END;
BEGIN
    IF cardinality(lanes) = 1 THEN
        RETURN QUERY
        SELECT r.id, r.state, r.version, r.body, r.parent, r.queue, nullif(r.labels, '{}'), r.priority,
            r.rank, r.deadline_at, nullif(r.chain, ''),
            date_part('epoch', r.created_at), nullif(r.updated_at, r.created_at),
            NULL::timestamptz, NULL::boolean, NULL::boolean
        FROM interlock.record AS r
        WHERE r.kind = of_kind AND r.lane = lanes[1] AND r.ready
        ORDER BY r.rank, r.id LIMIT most;
    ELSE
        RETURN QUERY
        SELECT r.id, r.state, r.version, r.body, r.parent, r.queue, nullif(r.labels, '{}'), r.priority,
            r.rank, r.deadline_at, nullif(r.chain, ''),
            date_part('epoch', r.created_at), nullif(r.updated_at, r.created_at),
            NULL::timestamptz, NULL::boolean, NULL::boolean
        FROM (
            SELECT head.id, head.rank
            FROM unnest(lanes) AS l (lane)
            CROSS JOIN LATERAL (
                SELECT r.id, r.rank FROM interlock.record AS r
                WHERE r.kind = of_kind AND r.lane = l.lane AND r.ready
                ORDER BY r.rank, r.id LIMIT most
            ) AS head
            ORDER BY head.rank, head.id LIMIT most
        ) AS head
        CROSS JOIN LATERAL (
            SELECT * FROM interlock.record WHERE record.id = head.id AND record.kind = of_kind OFFSET 0
        ) AS r
        ORDER BY head.rank, head.id;
    END IF;
    id := NULL;
    moment := now;
    delayed := coalesce((
        SELECT record.ready_at <= now FROM interlock.record
        WHERE record.kind = of_kind AND record.ready_at IS NOT NULL AND NOT record.ready
        ORDER BY record.ready_at LIMIT 1
    ), false);
    RETURN NEXT;
END $$;

-- Claims of programs of an earlier version.
CREATE OR REPLACE FUNCTION interlock.take_ready(
    not_before timestamptz, of_kind text, queues text[], has text[], most integer, reach integer
)
RETURNS TABLE (
    id text, state text, version bigint, body json, parent text, queue text, labels text[],
    priority integer, rank bigint, deadline_at timestamptz, chain text,
    created_s double precision, updated_at timestamptz, moment timestamptz, delayed boolean, cut boolean
)
LANGUAGE sql
AS $$
    SELECT * FROM interlock.take_ready(
        not_before, of_kind, NULL::text[], queues, array_append(has, E'\x1d'), most, reach
    )
$$;
CREATE OR REPLACE FUNCTION interlock.peek_ready(
    not_before timestamptz, of_kind text, queues text[], has text[], most integer
)
RETURNS TABLE (
    id text, state text, version bigint, body json, parent text, queue text, labels text[],
    priority integer, rank bigint, deadline_at timestamptz, chain text,
    created_s double precision, updated_at timestamptz, moment timestamptz, delayed boolean, cut boolean
)
LANGUAGE sql STABLE
AS $$
    SELECT * FROM interlock.peek_ready(
        not_before, of_kind, NULL::text[], queues, array_append(has, E'\x1d'), most
    )
$$;

-- `write_wave` of 0003_commit.sql, with one more column, of which both lists may be without:
--
--     16 handler
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
    the_handler text := shared[16];
    the_lane text := concat_ws(E'\x1f', coalesce(shared[7], ''), shared[8], E'\x1d' || shared[16]);
    one_lane boolean := varied[7] IS NULL AND varied[8] IS NULL AND varied[16] IS NULL;
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
                ELSE concat_ws(
                    E'\x1f', coalesce(c.queue, the_queue, ''), coalesce(c.labels, the_labels),
                    E'\x1d' || coalesce(c.handler, the_handler)
                ) END,
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
            string_to_array(varied[12], E'\x1e', '')::bigint[], c_chain, c_expected_us,
            string_to_array(varied[16], E'\x1e', '')
        ) WITH ORDINALITY AS c (
            id, body, place, kind, expected, state, parent, queue, labels, priority, ready_us, rank,
            deadline_us, chain, expected_us, handler, item
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
                ELSE concat_ws(
                    E'\x1f', coalesce(c.queue, the_queue, ''), coalesce(c.labels, the_labels),
                    E'\x1d' || coalesce(c.handler, the_handler)
                ) END,
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
            string_to_array(varied[12], E'\x1e', '')::bigint[], c_chain, string_to_array(varied[16], E'\x1e', '')
        ) WITH ORDINALITY AS c (
            id, body, place, kind, expected, state, parent, queue, labels, priority, ready_us, rank,
            deadline_us, chain, handler, item
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

-- `write_alike` of 0007_alike.sql, likewise:
--
--     14 handler
CREATE OR REPLACE FUNCTION interlock.write_alike(
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
    the_lane text := concat_ws(E'\x1f', coalesce(said[5], ''), said[6], E'\x1d' || said[14]);
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
