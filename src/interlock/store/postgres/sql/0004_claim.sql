-- Taking what is ready or due: locked for one transaction only, skipping what others hold. Costs
-- depend on what is taken and on the number of lanes, never on how much is waiting.

-- Up to `most` ready records, in the order of their rank. Looks at the first `reach` of each lane;
-- `cut` says that there was more to look at, so that who got too little can look further.
-- `delayed` says that records have become ready that nobody has promoted yet. These two and the time come
-- in a row of their own, the last.
--
-- Moments are what takes the driver longest to read. So when a record became ready is not among what is told:
-- it follows from rank and priority. When it was created comes in seconds since 1970, and NULL is what a
-- column mostly is: no labels, no chain, last changed when it was created.
CREATE FUNCTION interlock.take_ready(
    not_before timestamptz, of_kind text, queues text[], has text[], most integer, reach integer
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
    lanes text[] := queues;
BEGIN
    waiting := (
        SELECT record.ready_at <= now FROM interlock.record
        WHERE record.kind = of_kind AND record.ready_at IS NOT NULL AND NOT record.ready
        ORDER BY record.ready_at LIMIT 1
    );

    -- The lanes of these queues that need none but these labels. Without labels a lane is called like its
    -- queue; all others of the queue follow its separator. Each in which something is ready is found by
    -- one look into the index, which jumps from lane to lane.
    IF cardinality(queues) > 1 THEN
        lanes := ARRAY(SELECT DISTINCT unnest(queues));
    END IF;
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

-- Likewise by deadline.
CREATE FUNCTION interlock.take_due(not_before timestamptz, kinds text[], most integer, reach integer)
RETURNS TABLE (
    moment timestamptz, delayed boolean, cut boolean,
    kind text, id text, state text, version bigint, body json, parent text, queue text, labels text[],
    priority integer, ready_at timestamptz, deadline_at timestamptz, chain text,
    created_at timestamptz, updated_at timestamptz
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := greatest(clock_timestamp(), not_before);
BEGIN
    RETURN QUERY
    WITH heads AS MATERIALIZED (
        SELECT k.kind, head.id, head.deadline_at
        FROM (SELECT DISTINCT unnest(kinds)) AS k (kind)
        CROSS JOIN LATERAL (
            SELECT r.id, r.deadline_at FROM interlock.record AS r
            WHERE interlock.stretch(r.kind, '') = interlock.stretch(k.kind, '') AND r.kind = k.kind
              AND r.deadline_at <= now
            ORDER BY r.deadline_at, r.id LIMIT reach
        ) AS head
    ), taken AS (
        SELECT r.* FROM (SELECT * FROM heads ORDER BY heads.deadline_at, heads.id) AS head
        CROSS JOIN LATERAL (
            SELECT r.kind, r.id, r.state, r.version, r.body, r.parent, r.queue, r.labels, r.priority,
                r.ready_at, r.deadline_at, r.chain, r.created_at, nullif(r.updated_at, r.created_at)
            FROM interlock.record AS r
            WHERE r.id = head.id AND r.kind = head.kind AND r.deadline_at = head.deadline_at
            FOR UPDATE SKIP LOCKED
        ) AS r
        LIMIT most
    )
    SELECT NULL::timestamptz, NULL::boolean, NULL::boolean, taken.* FROM taken
    UNION ALL
    SELECT now, false, (SELECT count(*) >= reach FROM heads),
        NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::json, NULL::text, NULL::text, NULL::text[],
        NULL::integer, NULL::timestamptz, NULL::timestamptz, NULL::text, NULL::timestamptz, NULL::timestamptz;
END $$;

-- Lets records take their place in the queue whose time has come; says how many. In a transaction
-- of its own, so that other claimers see them at once.
CREATE FUNCTION interlock.promote(not_before timestamptz, of_kind text, most integer)
RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
    moment timestamptz := greatest(clock_timestamp(), not_before);
    number integer;
BEGIN
    UPDATE interlock.record SET ready = true
    WHERE record.kind = of_kind AND record.id = ANY (ARRAY(
        SELECT r.id FROM interlock.record AS r
        WHERE r.kind = of_kind AND r.ready_at IS NOT NULL AND NOT r.ready AND r.ready_at <= moment
        ORDER BY r.ready_at LIMIT most FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS number = ROW_COUNT;
    RETURN number;
END $$;

-- The records with these keys, in their order, with gaps where there is none.
CREATE FUNCTION interlock.load(kinds text[], ids text[])
RETURNS TABLE (
    kind text, id text, state text, version bigint, body json, parent text, queue text, labels text[],
    priority integer, ready_at timestamptz, deadline_at timestamptz, chain text,
    created_at timestamptz, updated_at timestamptz
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT r.kind, r.id, r.state, r.version, r.body, r.parent, r.queue, r.labels, r.priority,
        r.ready_at, r.deadline_at, r.chain, r.created_at, r.updated_at
    FROM unnest(kinds, ids) WITH ORDINALITY AS key (kind, id, place)
    LEFT JOIN LATERAL (
        SELECT * FROM interlock.record WHERE record.id = key.id AND record.kind = key.kind OFFSET 0
    ) AS r ON true
    ORDER BY key.place;
END $$;

-- Who claims alone need not hold anything while it decides: it looks, and what it writes is compared by
-- version like all else. So this is `take_ready` without locks, which needs no transaction around it and
-- writes nothing to the log. Who meets somebody goes the other way.
--
-- The rows are those of `take_ready`.
CREATE FUNCTION interlock.peek_ready(
    not_before timestamptz, of_kind text, queues text[], has text[], most integer
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
    lanes text[] := queues;
BEGIN
    IF cardinality(queues) > 1 THEN
        lanes := ARRAY(SELECT DISTINCT unnest(queues));
    END IF;
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
