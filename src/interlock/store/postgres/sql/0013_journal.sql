-- Write a batch into the journal as one row. Its members have the same note, or a line of notes each.
--
-- `journal_packed` has the ids of a batch in the order in which they are told. The member in the n-th place
-- has the place (xact, entry + n - 1) in the journal: numbers are given out 1,024 at a time, and no batch is
-- larger. So a cursor may be within a row. A member whose record was pruned is blank, and `members` counts
-- those that are left; the row goes with the last of them.
--
-- No index leads from a record to its packed rows: the record knows in which transactions they were written
-- (`trail`). Records with a long life would have a long trail, so after 32 of them they are told of in
-- `journal_single`, which has an index by record. So are refusals, and commits that have nothing in common.

ALTER TABLE interlock.journal RENAME TO journal_single;
ALTER TABLE interlock.journal_single ALTER COLUMN entry SET INCREMENT BY 1024;
DROP VIEW interlock.journal_steps;

CREATE TABLE interlock.journal_packed (
    xact bigint NOT NULL,
    -- From the sequence of `journal_single`.
    entry bigint NOT NULL,
    at timestamptz NOT NULL,
    version bigint NOT NULL,
    members integer NOT NULL,
    kind text COLLATE "C" NOT NULL,
    note json,
    -- With E'\x1e' between them.
    ids text NOT NULL,
    -- Lines, where `note` is NULL.
    notes text,
    PRIMARY KEY (xact, entry)
)
WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- What happened, one row for each record and commit: for people, and for programs of an earlier version.
CREATE VIEW interlock.journal AS
SELECT xact, entry, at, kind, id, version, note, chain FROM interlock.journal_single
UNION ALL
SELECT packed.xact, packed.entry + member.place - 1, packed.at, packed.kind, member.id, packed.version,
    coalesce(packed.note, member.note::json), ''
FROM interlock.journal_packed AS packed
CROSS JOIN LATERAL unnest(string_to_array(packed.ids, E'\x1e', ''), string_to_array(packed.notes, E'\n'))
    WITH ORDINALITY AS member (id, note, place)
WHERE member.id IS NOT NULL;

-- For people: each step of each machine in a row of its own. What an entry leaves out is empty.
CREATE VIEW interlock.journal_steps AS
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

-- The transactions of a trail, each once.
CREATE FUNCTION interlock.xacts_of(trail bytea) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY(
        SELECT DISTINCT ('x' || encode(substr(trail, place, 8), 'hex'))::bit(64)::bigint
        FROM generate_series(1, length(trail), 8) AS place
    )
$$;

-- Blanks the members of packed rows whose ids are among `names`; says how many there were, and the last place.
-- The rows are locked first, so that of two who do that to the same row none brings back what the other one
-- has removed.
CREATE FUNCTION interlock.unpack(
    of_kind text, names text[], xacts bigint[], OUT entries bigint, OUT last_xact bigint, OUT last_entry bigint
)
LANGUAGE plpgsql
SET interlock.vouched = 'on' SET enable_seqscan = off SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
BEGIN
    PERFORM FROM interlock.journal_packed AS p
    WHERE p.xact = ANY (xacts) AND p.kind = of_kind
    ORDER BY p.xact, p.entry FOR UPDATE;

    WITH counted AS MATERIALIZED (
        SELECT p.xact, p.entry, count(gone.id) AS gone, count(member.id) - count(gone.id) AS remaining,
            string_agg(
                CASE WHEN gone.id IS NULL THEN coalesce(member.id, '') ELSE '' END, E'\x1e' ORDER BY member.place
            ) AS ids,
            max(member.place) FILTER (WHERE gone.id IS NOT NULL) AS last
        FROM interlock.journal_packed AS p
        CROSS JOIN LATERAL unnest(string_to_array(p.ids, E'\x1e', '')) WITH ORDINALITY AS member (id, place)
        LEFT JOIN (SELECT DISTINCT unnest(names)) AS gone (id) ON gone.id = member.id
        WHERE p.xact = ANY (xacts) AND p.kind = of_kind
        GROUP BY p.xact, p.entry
        HAVING count(gone.id) > 0
    ), emptied AS (
        DELETE FROM interlock.journal_packed AS p USING counted AS c
        WHERE p.xact = c.xact AND p.entry = c.entry AND c.remaining = 0
    ), thinned AS (
        UPDATE interlock.journal_packed AS p SET ids = c.ids, members = c.remaining FROM counted AS c
        WHERE p.xact = c.xact AND p.entry = c.entry AND c.remaining > 0
    )
    SELECT coalesce(sum(c.gone), 0), (array_agg(c.xact ORDER BY c.xact DESC, c.entry DESC))[1],
        (array_agg(c.entry + c.last - 1 ORDER BY c.xact DESC, c.entry DESC))[1]
    INTO entries, last_xact, last_entry FROM counted AS c;
END $$;

-- The journal only grows, until the record it tells of has been pruned.
CREATE OR REPLACE FUNCTION interlock.refuse_forgetting() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wrong record;
BEGIN
    SELECT gone.kind, gone.id INTO wrong FROM gone
    WHERE (SELECT count(*) FROM interlock.spec WHERE spec.kind = gone.kind AND spec.id = gone.id) > 0
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the journal of % % goes when the record does, not before', wrong.kind, wrong.id
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER rewriting BEFORE UPDATE OR DELETE ON interlock.journal_packed FOR EACH STATEMENT
WHEN (NOT interlock.is_vouched()) EXECUTE FUNCTION interlock.refuse_always();
CREATE TRIGGER emptying BEFORE TRUNCATE ON interlock.journal_packed
FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse_always();

CREATE FUNCTION interlock.forget_by_hand() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM interlock.spec WHERE spec.kind = OLD.kind AND spec.id = OLD.id) THEN
        RAISE EXCEPTION 'the journal of % % goes when the record does, not before', OLD.kind, OLD.id
            USING ERRCODE = 'restrict_violation';
    END IF;
    DELETE FROM interlock.journal_single AS j WHERE j.xact = OLD.xact AND j.entry = OLD.entry;
    IF NOT FOUND THEN
        PERFORM interlock.unpack(OLD.kind, ARRAY[OLD.id], ARRAY[OLD.xact]);
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER rewriting INSTEAD OF INSERT OR UPDATE ON interlock.journal
FOR EACH ROW EXECUTE FUNCTION interlock.refuse_always();
CREATE TRIGGER forgetting INSTEAD OF DELETE ON interlock.journal
FOR EACH ROW EXECUTE FUNCTION interlock.forget_by_hand();

-- `prune` of 0006_prune.sql, on the tables of today. What has ended is mostly in `ended`.
CREATE OR REPLACE FUNCTION interlock.prune(
    not_before timestamptz, of_kind text, states text[], age interval, most integer,
    OUT records bigint, OUT entries bigint, OUT requests bigint, OUT more boolean
)
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_custom_plan SET jit = off
SET interlock.vouched = 'on'
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := greatest(clock_timestamp(), not_before);
    before timestamptz := moment - age;
    ended_at tid[];
    living text[];
    names text[];
    trails bytea;
    single record;
    packed record;
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

    DELETE FROM interlock.request WHERE id = ANY (ARRAY(
        SELECT r.id FROM interlock.request AS r WHERE r.expires_at <= moment
        ORDER BY r.expires_at LIMIT most FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS requests = ROW_COUNT;
    more := more OR requests = most;
END $$;

-- `current_epoch` of 0009_restored.sql, which looks at both forms of the journal.
CREATE OR REPLACE FUNCTION interlock.current_epoch() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    here record;
    stored record;
    newest bigint;
    least bigint := floor(date_part('epoch', clock_timestamp()) / 1800)::bigint;
BEGIN
    SELECT * INTO here FROM interlock.identity();
    SELECT meta.* INTO stored FROM interlock.meta WHERE meta.one;
    IF stored.server = here.server AND stored.epoch >= least THEN
        RETURN stored.epoch;
    END IF;
    SELECT meta.* INTO stored FROM interlock.meta WHERE meta.one FOR UPDATE;
    IF stored.server = here.server THEN
        UPDATE interlock.meta SET epoch = greatest(stored.epoch, least) WHERE meta.one
        RETURNING meta.epoch INTO stored.epoch;
        RETURN stored.epoch;
    END IF;
    newest := greatest(
        stored.pruned_xact,
        (SELECT max(single.xact) FROM interlock.journal_single AS single),
        (SELECT max(packed.xact) FROM interlock.journal_packed AS packed)
    );
    UPDATE interlock.meta SET
        server = here.server,
        epoch = greatest(stored.epoch + 1, here.timeline, least),
        xact_offset = CASE
            WHEN newest - stored.xact_offset < pg_snapshot_xmax(pg_current_snapshot())::text::bigint
            THEN stored.xact_offset
            ELSE newest
        END
    WHERE meta.one
    RETURNING meta.epoch INTO stored.epoch;
    RETURN stored.epoch;
END $$;
