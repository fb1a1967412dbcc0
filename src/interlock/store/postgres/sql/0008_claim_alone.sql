-- A claim in two messages, and less to write.

-- Who claims alone need not hold anything while it decides: it looks, and what it writes is compared by
-- version like all else. So this is `take_ready` without locks, which needs no transaction around it and
-- writes nothing to the log. Who meets somebody goes the other way.
--
-- What is NULL is what it mostly is: no labels, no chain, last changed when it was created. The last row has
-- only the time, and whether records have become ready that nobody has promoted yet.
CREATE FUNCTION interlock.peek_ready(
    not_before timestamptz, of_kind text, queues text[], has text[], most integer
)
RETURNS TABLE (
    id text, state text, version bigint, body json, parent text, queue text, labels text[],
    priority integer, ready_at timestamptz, deadline_at timestamptz, chain text,
    created_at timestamptz, updated_at timestamptz, moment timestamptz, delayed boolean
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := greatest(clock_timestamp(), not_before);
    lanes text[] := ARRAY(SELECT DISTINCT unnest(queues));
BEGIN
    -- As in `take_ready`: from lane to lane by one look into the index each.
    IF cardinality(has) > 0 THEN
        WITH RECURSIVE lane AS (
            SELECT q.queue, q.queue COLLATE "C" AS name FROM unnest(lanes) AS q (queue)
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
        SELECT array_agg(lane.name) INTO lanes FROM lane
        WHERE (string_to_array(lane.name, E'\x1f'))[2:] <@ has;
    END IF;

    IF cardinality(lanes) = 1 THEN
        RETURN QUERY
        SELECT r.id, r.state, r.version, r.body, r.parent, r.queue, nullif(r.labels, '{}'), r.priority,
            r.ready_at, r.deadline_at, nullif(r.chain, ''), r.created_at, nullif(r.updated_at, r.created_at),
            NULL::timestamptz, NULL::boolean
        FROM interlock.record AS r
        WHERE r.kind = of_kind AND r.lane = lanes[1] AND r.ready
        ORDER BY r.rank, r.id LIMIT most;
    ELSE
        RETURN QUERY
        SELECT r.id, r.state, r.version, r.body, r.parent, r.queue, nullif(r.labels, '{}'), r.priority,
            r.ready_at, r.deadline_at, nullif(r.chain, ''), r.created_at, nullif(r.updated_at, r.created_at),
            NULL::timestamptz, NULL::boolean
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

-- As in 0003, but for one line: a body that is '', or `bodies` that are NULL, mean that it stays as it is. It
-- need not be sent, nor taken apart, nor checked, and one that is stored apart from its row stays there.
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
    the_place integer := shared[1];
    the_kind text := shared[3];
    the_expected bigint := shared[4];
    the_state text := shared[5];
    the_parent text := shared[6];
    the_queue text := shared[7];
    the_labels text := shared[8];
    the_priority integer := shared[9];
    the_ready_at timestamptz := timestamptz 'epoch' + shared[10]::bigint * interval '1 microsecond';
    the_rank bigint := shared[11];
    the_deadline_at timestamptz := timestamptz 'epoch' + shared[12]::bigint * interval '1 microsecond';
    the_chain text := shared[13];
    versions bigint[];
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
        SELECT array_agg(r.version), array_agg(r.state) INTO versions, states
        FROM unnest(c_id, c_kind) AS c (id, kind)
        LEFT JOIN LATERAL (
            SELECT record.version, record.state FROM interlock.record
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
        FROM unnest(c_id, c_expected, versions) WITH ORDINALITY AS c (id, expected, version, item)
        WHERE coalesce(c.expected::bigint, the_expected) <> coalesce(c.version, 0);
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
            labels = coalesce(string_to_array(coalesce(c.labels, the_labels), E'\x1f'), '{}'),
            priority = coalesce(c.priority, the_priority),
            ready_at = coalesce(timestamptz 'epoch' + c.ready_us * interval '1 microsecond', the_ready_at),
            deadline_at = coalesce(
                timestamptz 'epoch' + c.deadline_us * interval '1 microsecond', the_deadline_at
            ),
            chain = coalesce(c.chain, the_chain),
            updated_at = moment,
            lane = concat_ws(E'\x1f', coalesce(c.queue, the_queue, ''), coalesce(c.labels, the_labels)),
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
            string_to_array(varied[12], E'\x1e', '')::bigint[], c_chain
        ) WITH ORDINALITY AS c (
            id, body, place, kind, expected, state, parent, queue, labels, priority, ready_us, rank,
            deadline_us, chain, item
        )
        WHERE r.id BETWEEN c.id AND c.id
          AND r.kind BETWEEN coalesce(c.kind, the_kind) AND coalesce(c.kind, the_kind)
          AND r.version = coalesce(c.expected::bigint, the_expected)
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
            coalesce(string_to_array(coalesce(c.labels, the_labels), E'\x1f'), '{}'),
            coalesce(c.priority, the_priority),
            coalesce(timestamptz 'epoch' + c.ready_us * interval '1 microsecond', the_ready_at),
            coalesce(timestamptz 'epoch' + c.deadline_us * interval '1 microsecond', the_deadline_at),
            coalesce(c.chain, the_chain), moment, moment,
            concat_ws(E'\x1f', coalesce(c.queue, the_queue, ''), coalesce(c.labels, the_labels)),
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
            coalesce(c.expected::bigint, the_expected) + 1, c.note::json, coalesce(c.chain, the_chain)
        FROM unnest(c_id, string_to_array(notes, E'\n', 'null'), c_kind, c_expected, c_chain)
            WITH ORDINALITY AS c (id, note, kind, expected, chain, item)
        WHERE c.note IS NOT NULL AND c.item - 1 <> ALL (bad);
    ELSE
        INSERT INTO interlock.journal (xact, at, kind, id, version, note, chain)
        SELECT number, moment, n.kind, n.id, n.version, n.note, n.chain
        FROM (
            SELECT
                coalesce(c.place, the_place, c.item - 1), 0 AS part, c.turn::bigint,
                coalesce(c.kind, the_kind), c.id, coalesce(c.expected::bigint, the_expected) + 1,
                c.note::json, coalesce(c.chain, the_chain)
            FROM unnest(
                c_id, string_to_array(notes, E'\n', 'null'), c_place, string_to_array(varied[2], E'\x1e'),
                c_kind, c_expected, c_chain
            ) WITH ORDINALITY AS c (id, note, place, turn, kind, expected, chain, item)
            WHERE c.note IS NOT NULL AND coalesce(c.place, the_place, c.item - 1) <> ALL (bad)
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

-- What an entry leaves out is empty. (The program leaves nothing out: cutting it out costs more than it saves.)
CREATE OR REPLACE VIEW interlock.journal_steps AS
SELECT
    journal.at,
    journal.kind,
    journal.id,
    journal.version,
    step.value ->> 0 AS machine,
    step.value ->> 1 AS entity,
    step.value ->> 2 AS event,
    step.value ->> 3 AS source,
    step.value ->> 4 AS target,
    step.value ->> 5 AS owner,
    coalesce(journal.note ->> 'actor', '') AS actor,
    coalesce(journal.note ->> 'reason', '') AS reason,
    coalesce(journal.note ->> 'cause', '') AS cause,
    coalesce(journal.note ->> 'request_id', '') AS request_id,
    coalesce(journal.note ->> 'refusal', '') AS refusal,
    journal.xact,
    journal.entry
FROM interlock.journal
LEFT JOIN LATERAL json_array_elements(journal.note -> 'steps') AS step ON true
ORDER BY journal.xact, journal.entry;
