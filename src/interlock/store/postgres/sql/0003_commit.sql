-- Writes a wave of commits, in which no two touch the same record or request: one call, whatever
-- their number. `place` is the number of a commit in the wave. Arrays may end early where only NULL
-- would follow; changes come in the order of their keys.
--
-- The answer has one row with the time at which it is all true, and one for whatever stands in the way
-- of a commit: 'repeated' (item counts the requests), 'late' (item counts the limits), 'stale' and
-- 'illegal' (item counts the changes).
--
-- Who is `judging` locks everything, finds what stands in the way, and writes the rest. Who is not
-- writes as if nothing did, which is faster. Where that turns out to be wrong, or somebody creates the
-- same record or does the same request just then, it raises serialization_failure, unique_violation or
-- check_violation, and nothing is written.
--
-- Deadlocks: all lock records in the order of their keys, and requests after records, in the order of
-- their ids. (Somebody who judges locks what is there before he creates what is not; where that
-- crosses with others, the server ends one of them, which is then done again.)
--
-- The settings pin the plans: look each key up in its index. A plan that was made while a table was
-- small, or by statistics that are out of date, would otherwise stay.
CREATE FUNCTION interlock.write_wave(
    judging boolean,
    not_before timestamptz,
    c_place integer[], c_turn integer[], c_kind text[], c_id text[], c_expected bigint[], c_state text[],
    c_body json[], c_parent text[], c_queue text[], c_labels text[], c_priority integer[], c_rank bigint[],
    c_ready_at timestamptz[], c_deadline_at timestamptz[], c_chain text[], c_note json[],
    f_place integer[], f_kind text[], f_id text[], f_note json[],
    l_place integer[], l_not_after timestamptz[],
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
    versions bigint[];
    states text[];
    repeated integer[];
    late integer[];
    stale integer[];
    illegal integer[];
    bad integer[] := '{}';
    number bigint;
    written integer;
BEGIN
    IF judging THEN
        -- A LATERAL subquery that locks cannot be turned into another join: the keys are
        -- locked one after the other, as they come.
        SELECT array_agg(r.version), array_agg(r.state) INTO versions, states
        FROM unnest(c_kind, c_id) AS c (kind, id)
        LEFT JOIN LATERAL (
            SELECT record.version, record.state FROM interlock.record
            WHERE record.id = c.id AND record.kind = c.kind FOR UPDATE
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
        FROM unnest(c_expected, versions) WITH ORDINALITY AS c (expected, version, item)
        WHERE c.expected <> coalesce(c.version, 0);
        SELECT coalesce(array_agg(c.item), '{}') INTO illegal
        FROM unnest(c_kind, c_state, states) WITH ORDINALITY AS c (kind, state, source, item)
        WHERE c.state IS DISTINCT FROM c.source
          AND (SELECT count(*) FROM interlock.path
               WHERE path.kind = c.kind AND path.source = coalesce(c.source, '')
                 AND path.target = c.state) = 0;

        bad := ARRAY(
            SELECT q_place[i] FROM unnest(repeated) AS i
            UNION SELECT l_place[i] FROM unnest(late) AS i
            UNION SELECT c_place[i] FROM unnest(stale || illegal) AS i
        );
    END IF;

    -- An upsert, not UPDATE ... FROM: it looks each key up whatever the planner believes. It
    -- would create a record that is missing; the database refuses any but a first version.
    INSERT INTO interlock.record AS r (
        kind, id, state, version, body, parent, queue, labels, priority, ready_at, deadline_at,
        chain, created_at, updated_at, lane, rank, ready
    )
    SELECT
        c.kind, c.id, c.state, c.expected + 1, c.body, c.parent, c.queue,
        coalesce(string_to_array(c.labels, E'\x1f'), '{}'),
        coalesce(c.priority, 0), c.ready_at, c.deadline_at, coalesce(c.chain, ''), moment, moment,
        concat_ws(E'\x1f', coalesce(c.queue, ''), c.labels), coalesce(c.rank, 0),
        coalesce(c.ready_at <= moment, false)
    FROM unnest(
        c_place, c_kind, c_id, c_expected, c_state, c_body, c_parent, c_queue, c_labels,
        c_priority, c_rank, c_ready_at, c_deadline_at, c_chain
    ) AS c (
        place, kind, id, expected, state, body, parent, queue, labels,
        priority, rank, ready_at, deadline_at, chain
    )
    WHERE c.place <> ALL (bad)
    ON CONFLICT (id, kind) DO UPDATE SET
        state = excluded.state,
        version = excluded.version,
        body = excluded.body,
        parent = excluded.parent,
        queue = excluded.queue,
        labels = excluded.labels,
        priority = excluded.priority,
        ready_at = excluded.ready_at,
        deadline_at = excluded.deadline_at,
        chain = excluded.chain,
        updated_at = excluded.updated_at,
        lane = excluded.lane,
        rank = excluded.rank,
        ready = excluded.ready
    WHERE r.version = excluded.version - 1;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written <> (SELECT count(*) FROM unnest(c_place) AS place WHERE place <> ALL (bad)) THEN
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
    SELECT pg_current_xact_id()::text::bigint + meta.xact_offset INTO number
    FROM interlock.meta WHERE meta.one;
    INSERT INTO interlock.journal (xact, at, kind, id, version, note, chain)
    SELECT number, moment, n.kind, n.id, n.version, n.note, n.chain
    FROM (
        SELECT c.place, 0 AS part, c.turn, c.kind, c.id, c.expected + 1, c.note, coalesce(c.chain, '')
        FROM unnest(c_place, c_turn, c_kind, c_id, c_expected, c_note, c_chain)
            AS c (place, turn, kind, id, expected, note, chain)
        WHERE c.note IS NOT NULL AND c.place <> ALL (bad)
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

    IF NOT judging AND EXISTS (
        SELECT FROM unnest(l_not_after) AS l (not_after)
        WHERE l.not_after < greatest(clock_timestamp(), not_before)
    ) THEN
        RAISE serialization_failure;
    END IF;

    RETURN QUERY SELECT
        'done', NULL::integer, NULL::bigint, NULL::text, moment,
        NULL::text, NULL::text, NULL::integer, NULL::bytea, NULL::timestamptz, NULL::timestamptz;
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

-- The same as a transaction of its own: first without judging; when something stands in the way, again.
--
-- Not for who holds locks already, as claimers do: each attempt is a subtransaction, and a row that the
-- one locks and the other writes needs a multixact, which costs more than all the rest.
CREATE FUNCTION interlock.commit_wave(
    not_before timestamptz,
    c_place integer[], c_turn integer[], c_kind text[], c_id text[], c_expected bigint[], c_state text[],
    c_body json[], c_parent text[], c_queue text[], c_labels text[], c_priority integer[], c_rank bigint[],
    c_ready_at timestamptz[], c_deadline_at timestamptz[], c_chain text[], c_note json[],
    f_place integer[], f_kind text[], f_id text[], f_note json[],
    l_place integer[], l_not_after timestamptz[],
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
                attempt > 1, not_before,
                c_place, c_turn, c_kind, c_id, c_expected, c_state, c_body, c_parent, c_queue,
                c_labels, c_priority, c_rank, c_ready_at, c_deadline_at, c_chain, c_note, f_place,
                f_kind, f_id, f_note, l_place, l_not_after, q_place, q_id, q_endpoint, q_fingerprint,
                q_status, q_body, q_ttl_s
            );
            RETURN;
        EXCEPTION WHEN serialization_failure OR unique_violation OR check_violation THEN
            IF attempt = 25 THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END $$;
