-- What is written by way of `write_wave` is compared with the table there, once for all rows that make the
-- same move, and not a second time by a trigger. Triggers that are shown all rows of a statement, before and
-- after, had cost an eighth of what the server spends on a claim and a completion: it copies the rows for them.
--
-- Who writes by hand is met by triggers all the same, row by row: they ask for a setting that only the function
-- has, for as long as it runs. It is there against mistakes. Who sets it by hand to get past them could as well
-- have dropped them.

CREATE INDEX path_by_target ON interlock.path (kind, target, source);

DROP TRIGGER creations ON interlock.record;
DROP TRIGGER changes ON interlock.record;
DROP FUNCTION interlock.refuse_creations();
DROP FUNCTION interlock.refuse_changes();

CREATE FUNCTION interlock.refuse_creation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.version <> 1 THEN
        RAISE EXCEPTION 'a % cannot be created in version % (%)', NEW.kind, NEW.version, NEW.id
            USING ERRCODE = 'check_violation', HINT = 'A record begins with version 1.';
    END IF;
    IF NOT EXISTS (
        SELECT FROM interlock.path
        WHERE path.kind = NEW.kind AND path.source = '' AND path.target = NEW.state
    ) THEN
        RAISE EXCEPTION 'a % cannot be created as % (%)', NEW.kind, NEW.state, NEW.id
            USING ERRCODE = 'check_violation', HINT = 'See the tables kind, state and path for what may be.';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION interlock.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.kind, NEW.id) <> (OLD.kind, OLD.id) THEN
        RAISE EXCEPTION 'a record keeps its kind and id: % % was % %', NEW.kind, NEW.id, OLD.kind, OLD.id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NOT EXISTS (
        SELECT FROM interlock.path
        WHERE path.kind = NEW.kind AND path.source = OLD.state AND path.target = NEW.state
    ) THEN
        RAISE EXCEPTION '% % is % and cannot become %', NEW.kind, NEW.id, OLD.state, NEW.state
            USING ERRCODE = 'check_violation', HINT = 'No path of its table leads there; see the table path.';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER creations AFTER INSERT ON interlock.record FOR EACH ROW
WHEN (current_setting('interlock.vouched', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION interlock.refuse_creation();
CREATE TRIGGER changes AFTER UPDATE ON interlock.record FOR EACH ROW
WHEN (
    current_setting('interlock.vouched', true) IS DISTINCT FROM 'on'
    AND (OLD.state, OLD.kind, OLD.id) IS DISTINCT FROM (NEW.state, NEW.kind, NEW.id)
)
EXECUTE FUNCTION interlock.refuse_change();

-- As in 0008, but that it compares moves with the table itself. What shares kind and state with all others, as
-- it mostly does, is looked up once: `sources` are the states that may become this one, '' where it may begin.
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
    sources text[];
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
