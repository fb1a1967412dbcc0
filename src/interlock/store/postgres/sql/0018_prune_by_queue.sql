-- Removes ended records: rows of `ended` by their place, and rows of `live` by their id, both of which the caller
-- has locked. Answers how many records and entries of the journal went.
CREATE FUNCTION interlock.remove_ended(
    of_kind text, ended_at tid[], living text[], OUT records bigint, OUT entries bigint
)
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_custom_plan SET jit = off
SET interlock.vouched = 'on'
AS $$
#variable_conflict use_column
DECLARE
    names text[];
    trails bytea;
    single record;
    packed record;
BEGIN
    WITH gone AS (
        DELETE FROM interlock.ended AS e WHERE e.ctid = ANY (ended_at) RETURNING e.id, e.trail
    ), gone_too AS (
        DELETE FROM interlock.live AS l WHERE l.id = ANY (living) AND (l.kind = of_kind) IS TRUE
        RETURNING l.id, l.trail
    )
    SELECT coalesce(array_agg(g.id), '{}'), coalesce(string_agg(g.trail, ''::bytea), '') INTO names, trails
    FROM (SELECT * FROM gone UNION ALL SELECT * FROM gone_too) AS g;
    records := cardinality(names);
    DELETE FROM interlock.spec AS s WHERE s.id = ANY (names) AND (s.kind = of_kind) IS TRUE;

    SELECT * INTO packed FROM interlock.unpack(of_kind, names, interlock.xacts_of(trails));
    WITH gone AS (
        DELETE FROM interlock.journal_single AS j WHERE j.id = ANY (names) AND j.kind = of_kind
        RETURNING j.xact, j.entry
    )
    SELECT count(*) AS number, (array_agg(xact ORDER BY xact DESC, entry DESC))[1] AS xact,
        (array_agg(entry ORDER BY xact DESC, entry DESC))[1] AS entry
    INTO single FROM gone;
    entries := single.number + packed.entries;
    UPDATE interlock.meta SET (pruned_xact, pruned_entry) = (last.xact, last.entry)
    FROM (
        SELECT v.xact, v.entry
        FROM (VALUES (single.xact, single.entry), (packed.last_xact, packed.last_entry)) AS v (xact, entry)
        WHERE v.xact IS NOT NULL ORDER BY v.xact DESC, v.entry DESC LIMIT 1
    ) AS last
    WHERE meta.one AND (meta.pruned_xact, meta.pruned_entry) < (last.xact, last.entry);
END $$;

-- `prune` of 0013_journal.sql, which removes by the function above.
CREATE OR REPLACE FUNCTION interlock.prune(
    not_before timestamptz, of_kind text, states text[], age interval, most integer,
    OUT records bigint, OUT entries bigint, OUT requests bigint, OUT more boolean
)
LANGUAGE plpgsql
-- A bitmap would be of all records of the state, to sort them and leave most out.
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET plan_cache_mode = force_custom_plan SET jit = off
SET interlock.vouched = 'on'
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := greatest(clock_timestamp(), not_before);
    before timestamptz := moment - age;
    ended_at tid[];
    living text[];
BEGIN
    -- What was changed before that was also created before that, which the index knows.
    ended_at := ARRAY(
        SELECT e.place FROM unnest(states) AS wanted (state)
        CROSS JOIN LATERAL (
            SELECT e.ctid AS place FROM interlock.ended AS e
            WHERE interlock.stretch(e.kind, e.state) = interlock.stretch(of_kind, wanted.state)
              AND e.kind = of_kind AND e.state = wanted.state
              AND e.created_at <= before AND e.updated_at <= before
            ORDER BY e.created_at, e.id LIMIT most + 1 FOR UPDATE SKIP LOCKED
        ) AS e
        LIMIT most + 1
    );
    living := ARRAY(
        SELECT l.id FROM unnest(states) AS wanted (state)
        CROSS JOIN LATERAL (
            SELECT l.id FROM interlock.live AS l
            WHERE interlock.stretch(l.kind, l.state) = interlock.stretch(of_kind, wanted.state)
              AND l.kind = of_kind AND l.state = wanted.state AND l.deadline_at IS NULL
              AND l.created_at <= before AND l.updated_at <= before
            ORDER BY l.created_at, l.id LIMIT most + 1 FOR UPDATE SKIP LOCKED
        ) AS l
        LIMIT most + 1
    ) || ARRAY(
        SELECT l.id FROM unnest(states) AS wanted (state)
        CROSS JOIN LATERAL (
            SELECT l.id FROM interlock.live AS l
            WHERE interlock.stretch(l.kind, l.state) = interlock.stretch(of_kind, wanted.state)
              AND l.kind = of_kind AND l.state = wanted.state AND l.deadline_at IS NOT NULL
              AND l.updated_at <= before
            LIMIT most + 1 FOR UPDATE SKIP LOCKED
        ) AS l
        LIMIT most + 1
    );
    more := cardinality(ended_at) + cardinality(living) > most;
    ended_at := ended_at[:most];
    living := living[:most - cardinality(ended_at)];
    SELECT gone.records, gone.entries INTO records, entries
    FROM interlock.remove_ended(of_kind, ended_at, living) AS gone;

    DELETE FROM interlock.request WHERE id = ANY (ARRAY(
        SELECT r.id FROM interlock.request AS r WHERE r.expires_at <= moment
        ORDER BY r.expires_at LIMIT most FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS requests = ROW_COUNT;
    more := more OR requests = most;
END $$;

-- Removes ended records of one state at the age of their queue: `ages` are those of `queues`, `age` that of all
-- others (NULL: they are kept). No index is by queue, so it looks at the next `within` records in the order of
-- creation, after (after_at, after_id). Answers the last one that it has looked at, NULL where nothing is left.
CREATE FUNCTION interlock.prune_by_queue(
    not_before timestamptz, of_kind text, of_state text, age interval, queues text[], ages interval[],
    after_at timestamptz, after_id text, most integer, within integer,
    OUT records bigint, OUT entries bigint, OUT last_at timestamptz, OUT last_id text
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := greatest(clock_timestamp(), not_before);
    before timestamptz := moment - (SELECT min(each.age) FROM unnest(ages || age) AS each (age));
    seen record;
    ended_at tid[];
    living text[];
BEGIN
    WITH looked_at AS (
        SELECT one.created_at, one.id, one.place, one.matches,
            row_number() OVER in_order AS number,
            count(*) FILTER (WHERE one.matches) OVER in_order AS matched
        FROM (
            SELECT r.created_at, r.id, r.place,
                coalesce(
                    r.updated_at <= moment - coalesce(ages[array_position(queues, r.queue)], age), false
                ) AS matches
            FROM (
                (
                    SELECT e.created_at, e.id, e.ctid AS place, e.updated_at, e.queue FROM interlock.ended AS e
                    WHERE interlock.stretch(e.kind, e.state) = interlock.stretch(of_kind, of_state)
                      AND e.kind = of_kind AND e.state = of_state AND e.created_at <= before
                      AND (e.created_at, e.id) > (after_at, after_id)
                    ORDER BY e.created_at, e.id LIMIT within + 1
                )
                UNION ALL
                (
                    SELECT l.created_at, l.id, NULL, l.updated_at, l.queue FROM interlock.live AS l
                    WHERE interlock.stretch(l.kind, l.state) = interlock.stretch(of_kind, of_state)
                      AND l.kind = of_kind AND l.state = of_state AND l.deadline_at IS NULL
                      AND l.created_at <= before AND (l.created_at, l.id) > (after_at, after_id)
                    ORDER BY l.created_at, l.id LIMIT within + 1
                )
                UNION ALL
                (
                    SELECT l.created_at, l.id, NULL, l.updated_at, l.queue FROM interlock.live AS l
                    WHERE interlock.stretch(l.kind, l.state) = interlock.stretch(of_kind, of_state)
                      AND l.kind = of_kind AND l.state = of_state AND l.deadline_at IS NOT NULL
                      AND l.created_at <= before AND (l.created_at, l.id) > (after_at, after_id)
                    ORDER BY l.created_at, l.id LIMIT within + 1
                )
            ) AS r
        ) AS one
        WINDOW in_order AS (ORDER BY one.created_at, one.id ROWS UNBOUNDED PRECEDING)
    ), taken AS (
        SELECT looked_at.* FROM looked_at WHERE looked_at.number <= within AND looked_at.matched <= most
    )
    SELECT (SELECT count(*) FROM looked_at) > (SELECT count(*) FROM taken) AS more,
        (SELECT array_agg(taken.place) FROM taken WHERE taken.matches AND taken.place IS NOT NULL) AS places,
        (SELECT array_agg(taken.id) FROM taken WHERE taken.matches AND taken.place IS NULL) AS ids,
        final.created_at, final.id
    INTO seen
    FROM (VALUES (true)) AS always (there)
    LEFT JOIN (SELECT taken.created_at, taken.id FROM taken ORDER BY taken.number DESC LIMIT 1) AS final ON true;
    IF seen.more THEN
        last_at := seen.created_at;
        last_id := seen.id;
    END IF;

    -- What somebody holds is left for the next time, and what is alive again is left alone.
    ended_at := ARRAY(
        SELECT e.ctid FROM interlock.ended AS e
        WHERE e.ctid = ANY (seen.places) AND (e.kind = of_kind) IS TRUE FOR UPDATE SKIP LOCKED
    );
    living := ARRAY(
        SELECT l.id FROM interlock.live AS l
        WHERE l.id = ANY (seen.ids) AND (l.kind = of_kind) IS TRUE AND (l.state = of_state) IS TRUE
          AND l.updated_at <= moment - coalesce(ages[array_position(queues, l.queue)], age)
        FOR UPDATE SKIP LOCKED
    );
    SELECT gone.records, gone.entries INTO records, entries
    FROM interlock.remove_ended(of_kind, ended_at, living) AS gone;
END $$;
