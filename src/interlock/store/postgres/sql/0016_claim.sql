-- Claims, sweeps and loads on the tables of today: see 0004_claim.sql and 0010_handlers.sql. They tell what was
-- given and what is left, too.

CREATE OR REPLACE FUNCTION interlock.lanes_of(of_kind text, known text[], queues text[], has text[])
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
                SELECT FROM interlock.live AS r
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
                SELECT r.lane AS name FROM interlock.live AS r
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
                  SELECT FROM interlock.live AS r
                  WHERE r.kind = of_kind AND r.lane = lane.name AND r.ready LIMIT 1
              ) AS found
          ) > 0)
    );
END $$;

-- Up to `most` ready records, locked, in the order of their rank, after the one with the rank `first` and the id
-- `after`: dead entries of an index stay until they are vacuumed, and a claimer that knows where its last claim
-- ended need not pass them again. Looks at the first `reach` of each lane; `cut` says that there was more to look at. `delayed` says that
-- records have become ready that nobody has promoted yet. These two and the time come in a row of their own,
-- the last.
--
-- Moments are what takes the driver longest to read. So when a record became ready is not among what is told: it
-- follows from rank and priority. When it was created comes in seconds since 1970, and NULL is what a column
-- mostly is: no labels, last changed when it was created.
CREATE FUNCTION interlock.take_ready(
    not_before timestamptz, of_kind text, known text[], queues text[], has text[], most integer, reach integer,
    first bigint, after text
)
RETURNS TABLE (
    id text, state text, version bigint, body json, given json, result json, parent text, queue text,
    labels text[], priority integer, rank bigint, deadline_at timestamptz, created_s double precision,
    updated_at timestamptz, moment timestamptz, delayed boolean, cut boolean
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
        SELECT live.ready_at <= now FROM interlock.live
        WHERE live.kind = of_kind AND live.ready_at IS NOT NULL AND NOT live.ready
        ORDER BY live.ready_at LIMIT 1
    );

    -- One lane, as in most systems: the lock goes along the index and stops when there is enough.
    IF cardinality(lanes) = 1 THEN
        RETURN QUERY
        SELECT r.id, r.state, r.version, r.body, s.given, r.result, r.parent, r.queue, r.labels, r.priority,
            r.rank, r.deadline_at, date_part('epoch', r.created_at), nullif(r.updated_at, r.created_at),
            NULL::timestamptz, NULL::boolean, NULL::boolean
        FROM (
            SELECT * FROM interlock.live AS r
            WHERE r.kind = of_kind AND r.lane = lanes[1] AND r.ready AND (r.rank, r.id) > (first, after)
            ORDER BY r.rank, r.id LIMIT most FOR UPDATE SKIP LOCKED
        ) AS r
        LEFT JOIN LATERAL (
            SELECT spec.given FROM interlock.spec WHERE spec.id = r.id AND spec.kind = of_kind OFFSET 0
        ) AS s ON true;
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
            SELECT r.id, r.rank FROM interlock.live AS r
            WHERE r.kind = of_kind AND r.lane = l.lane AND r.ready AND (r.rank, r.id) > (first, after)
            ORDER BY r.rank, r.id LIMIT reach
        ) AS head
    ), taken AS (
        -- The lock comes after the sort and before the limit.
        SELECT r.* FROM (SELECT heads.id, heads.rank FROM heads ORDER BY heads.rank, heads.id) AS head
        CROSS JOIN LATERAL (
            SELECT * FROM interlock.live AS r
            WHERE r.id = head.id AND r.kind = of_kind AND (r.ready AND r.rank = head.rank) IS TRUE
            FOR UPDATE SKIP LOCKED
        ) AS r
        LIMIT most
    )
    SELECT r.id, r.state, r.version, r.body, s.given, r.result, r.parent, r.queue, r.labels, r.priority,
            r.rank, r.deadline_at, date_part('epoch', r.created_at), nullif(r.updated_at, r.created_at),
            NULL::timestamptz, NULL::boolean, NULL::boolean
    FROM taken AS r
        LEFT JOIN LATERAL (
            SELECT spec.given FROM interlock.spec WHERE spec.id = r.id AND spec.kind = of_kind OFFSET 0
        ) AS s ON true
    UNION ALL
    SELECT NULL::text, NULL::text, NULL::bigint, NULL::json, NULL::json, NULL::json, NULL::text, NULL::text,
        NULL::text[], NULL::integer, NULL::bigint, NULL::timestamptz, NULL::double precision, NULL::timestamptz,
        now, coalesce(waiting, false), (SELECT count(*) >= reach FROM heads);
END $$;

-- The same without locks, for a claimer that is alone: what it writes is compared by version like all else.
CREATE FUNCTION interlock.peek_ready(
    not_before timestamptz, of_kind text, known text[], queues text[], has text[], most integer, first bigint,
    after text
)
RETURNS TABLE (
    id text, state text, version bigint, body json, given json, result json, parent text, queue text,
    labels text[], priority integer, rank bigint, deadline_at timestamptz, created_s double precision,
    updated_at timestamptz, moment timestamptz, delayed boolean, cut boolean
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
        SELECT r.id, r.state, r.version, r.body, s.given, r.result, r.parent, r.queue, r.labels, r.priority,
            r.rank, r.deadline_at, date_part('epoch', r.created_at), nullif(r.updated_at, r.created_at),
            NULL::timestamptz, NULL::boolean, NULL::boolean
        FROM (
            SELECT * FROM interlock.live AS r
            WHERE r.kind = of_kind AND r.lane = lanes[1] AND r.ready AND (r.rank, r.id) > (first, after)
            ORDER BY r.rank, r.id LIMIT most
        ) AS r
        LEFT JOIN LATERAL (
            SELECT spec.given FROM interlock.spec WHERE spec.id = r.id AND spec.kind = of_kind OFFSET 0
        ) AS s ON true;
    ELSE
        RETURN QUERY
        SELECT r.id, r.state, r.version, r.body, s.given, r.result, r.parent, r.queue, r.labels, r.priority,
            r.rank, r.deadline_at, date_part('epoch', r.created_at), nullif(r.updated_at, r.created_at),
            NULL::timestamptz, NULL::boolean, NULL::boolean
        FROM (
            SELECT head.id, head.rank
            FROM unnest(lanes) AS l (lane)
            CROSS JOIN LATERAL (
                SELECT r.id, r.rank FROM interlock.live AS r
                WHERE r.kind = of_kind AND r.lane = l.lane AND r.ready AND (r.rank, r.id) > (first, after)
                ORDER BY r.rank, r.id LIMIT most
            ) AS head
            ORDER BY head.rank, head.id LIMIT most
        ) AS head
        CROSS JOIN LATERAL (
            SELECT * FROM interlock.live WHERE live.id = head.id AND live.kind = of_kind OFFSET 0
        ) AS r
        LEFT JOIN LATERAL (
            SELECT spec.given FROM interlock.spec WHERE spec.id = r.id AND spec.kind = of_kind OFFSET 0
        ) AS s ON true
        ORDER BY head.rank, head.id;
    END IF;
    id := NULL;
    moment := now;
    delayed := coalesce((
        SELECT live.ready_at <= now FROM interlock.live
        WHERE live.kind = of_kind AND live.ready_at IS NOT NULL AND NOT live.ready
        ORDER BY live.ready_at LIMIT 1
    ), false);
    RETURN NEXT;
END $$;

-- Likewise by deadline. Each state of a kind has its own stretch of the index.
CREATE FUNCTION interlock.take_overdue(not_before timestamptz, kinds text[], most integer, reach integer)
RETURNS TABLE (
    moment timestamptz, delayed boolean, cut boolean,
    kind text, id text, state text, version bigint, body json, given json, result json, parent text, queue text,
    labels text[], priority integer, ready_at timestamptz, deadline_at timestamptz,
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
        SELECT k.name AS kind, head.id, head.deadline_at
        FROM interlock.kind AS k
        CROSS JOIN LATERAL (SELECT DISTINCT unnest(k.stretches)) AS place (stretch)
        CROSS JOIN LATERAL (
            SELECT r.id, r.deadline_at FROM interlock.live AS r
            WHERE interlock.stretch(r.kind, r.state) = place.stretch AND (r.kind = k.name) IS TRUE
              AND r.deadline_at <= now
            ORDER BY r.deadline_at, r.id LIMIT reach
        ) AS head
        WHERE k.name = ANY (kinds)
    ), taken AS (
        SELECT r.* FROM (SELECT * FROM heads ORDER BY heads.deadline_at, heads.id) AS head
        CROSS JOIN LATERAL (
            SELECT * FROM interlock.live AS r
            WHERE r.id = head.id AND r.kind = head.kind AND (r.deadline_at = head.deadline_at) IS TRUE
            FOR UPDATE SKIP LOCKED
        ) AS r
        LIMIT most
    )
    SELECT NULL::timestamptz, NULL::boolean, NULL::boolean, r.kind, r.id, r.state, r.version, r.body, s.given,
        r.result, r.parent, r.queue, r.labels, r.priority, r.ready_at, r.deadline_at, r.created_at,
        nullif(r.updated_at, r.created_at)
    FROM taken AS r
    LEFT JOIN LATERAL (
        SELECT spec.given FROM interlock.spec WHERE spec.id = r.id AND spec.kind = r.kind OFFSET 0
    ) AS s ON true
    UNION ALL
    SELECT now, false, (SELECT count(*) >= reach FROM heads),
        NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::json, NULL::json, NULL::json, NULL::text,
        NULL::text, NULL::text[], NULL::integer, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz,
        NULL::timestamptz;
END $$;

CREATE OR REPLACE FUNCTION interlock.promote(not_before timestamptz, of_kind text, most integer)
RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
    moment timestamptz := greatest(clock_timestamp(), not_before);
    number integer;
BEGIN
    UPDATE interlock.live SET ready = true
    WHERE (live.kind = of_kind) IS TRUE AND live.id = ANY (ARRAY(
        SELECT r.id FROM interlock.live AS r
        WHERE r.kind = of_kind AND r.ready_at IS NOT NULL AND NOT r.ready AND r.ready_at <= moment
        ORDER BY r.ready_at LIMIT most FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS number = ROW_COUNT;
    RETURN number;
END $$;

-- The records with these keys, in their order, with gaps where there is none. Most are in `live`; `ended` is
-- looked at only for those that are not.
CREATE FUNCTION interlock.load_records(kinds text[], ids text[])
RETURNS TABLE (
    kind text, id text, state text, version bigint, body json, given json, result json, parent text, queue text,
    labels text[], priority integer, ready_at timestamptz, deadline_at timestamptz,
    created_at timestamptz, updated_at timestamptz
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT r.kind, r.id, r.state, r.version, r.body, r.given, r.result, r.parent, r.queue, r.labels, r.priority,
        r.ready_at, r.deadline_at, r.created_at, r.updated_at
    FROM unnest(kinds, ids) WITH ORDINALITY AS key (kind, id, place)
    LEFT JOIN LATERAL (
        SELECT r.*, s.given
        FROM (
            SELECT * FROM interlock.spec WHERE spec.id = key.id AND spec.kind = key.kind OFFSET 0
        ) AS s
        CROSS JOIN LATERAL (
            SELECT l.kind, l.id, l.state, l.version, l.body, l.result, l.parent, l.queue, l.labels, l.priority,
                l.ready_at, l.deadline_at, l.created_at, l.updated_at
            FROM interlock.live AS l WHERE l.id = key.id AND l.kind = key.kind
            UNION ALL
            SELECT e.kind, e.id, e.state, e.version, e.body, e.result, e.parent, e.queue, e.labels, e.priority,
                NULL::timestamptz, NULL::timestamptz, e.created_at, e.updated_at
            FROM interlock.ended AS e
            WHERE interlock.stretch(e.kind, e.state) = ANY (
                (SELECT k.stretches FROM interlock.kind AS k WHERE k.name = key.kind)::bigint[]
            ) AND e.created_at = s.created_at AND e.id = s.id AND (e.kind = s.kind) IS TRUE
            LIMIT 1
        ) AS r
    ) AS r ON true
    ORDER BY key.place;
END $$;
