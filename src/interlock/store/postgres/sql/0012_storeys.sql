-- incompatible
-- Keep a record in three places instead of one wide row that every step writes again:
--
--     spec     what it was created with: written once
--     live     what changes while it lives: a narrow row
--     ended    what is left when it has ended: written once, by the statement that removes it from `live`
--
-- A record has one row in `spec` and one in either `live` or `ended`. Which states are ends is said by the
-- program that writes (its catalogue): those that no path leads out of. A record that has ended and still waits
-- for a claim or a deadline stays in `live`, and so does one that was ended by hand: all that reads looks at both.
--
-- The view `record` shows all of it as one table, and takes legal changes by hand.

LOCK TABLE interlock.record, interlock.journal IN ACCESS EXCLUSIVE MODE;

-- Programs of an earlier version look for what a job was given in its body. They write and claim through these.
DROP FUNCTION
    interlock.write_alike(timestamptz, timestamptz, text, text, text, text, text[]),
    interlock.try_alike(timestamptz, timestamptz, text, text, text, text, text[]),
    interlock.take_ready(timestamptz, text, text[], text[], integer, integer),
    interlock.take_ready(timestamptz, text, text[], text[], text[], integer, integer),
    interlock.peek_ready(timestamptz, text, text[], text[], integer),
    interlock.peek_ready(timestamptz, text, text[], text[], text[], integer),
    interlock.take_due(timestamptz, text[], integer, integer),
    interlock.load(text[], text[]);
ALTER FUNCTION interlock.try_wave RENAME TO try_commits;
ALTER FUNCTION interlock.judge_wave RENAME TO judge_commits;

CREATE TABLE interlock.spec (
    created_at timestamptz NOT NULL,
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    -- `json` as `body` is: it comes back byte for byte. NULL where nothing was given.
    given json
)
WITH (autovacuum_vacuum_scale_factor = 0.05);

-- Columns that are mostly NULL cost nothing; what has the same width comes first.
CREATE TABLE interlock.live (
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    version bigint NOT NULL,
    -- The order within a lane: see interlock/store/ranking.py. NULL, as the lane is, unless it has a ready_at.
    rank bigint,
    ready_at timestamptz,
    deadline_at timestamptz,
    priority integer NOT NULL DEFAULT 0,
    -- ready_at has passed. A delayed record is none of the claims' business until it is promoted.
    ready boolean NOT NULL DEFAULT false,
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    -- Queue, labels and handler in one word: see interlock/store/ranking.py.
    lane text COLLATE "C",
    queue text COLLATE "C",
    parent text COLLATE "C",
    -- NULL where there are none.
    labels text[],
    -- The transactions in whose packed rows of the journal it is told of, 8 bytes each: see 0013_journal.sql.
    trail bytea NOT NULL DEFAULT '',
    body json NOT NULL,
    result json
)
-- Dead versions at the head of the queue are what makes claims slow: vacuum early, do not pause.
WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 1000
);

CREATE TABLE interlock.ended (
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    version bigint NOT NULL,
    priority integer NOT NULL DEFAULT 0,
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    queue text COLLATE "C",
    parent text COLLATE "C",
    labels text[],
    trail bytea NOT NULL DEFAULT '',
    body json NOT NULL,
    result json
)
WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

INSERT INTO interlock.spec (created_at, kind, id)
SELECT created_at, kind, id FROM interlock.record ORDER BY created_at, id;

INSERT INTO interlock.live (
    created_at, updated_at, version, rank, ready_at, deadline_at, priority, ready, kind, id, state, lane, queue,
    parent, labels, body
)
SELECT created_at, updated_at, version, CASE WHEN ready_at IS NOT NULL THEN rank END, ready_at, deadline_at,
    priority, ready, kind, id, record.state, CASE WHEN ready_at IS NOT NULL THEN lane END, queue,
    parent, nullif(labels, '{}'), body
FROM interlock.record
WHERE ready_at IS NOT NULL OR deadline_at IS NOT NULL OR NOT EXISTS (
    SELECT FROM interlock.state
    WHERE state.kind = record.kind AND state.name = record.state AND state.terminal
      AND NOT EXISTS (
          SELECT FROM interlock.path
          WHERE path.kind = state.kind AND path.source = state.name AND path.target <> state.name
      )
)
ORDER BY created_at, id;

INSERT INTO interlock.ended (
    created_at, updated_at, version, priority, kind, id, state, queue, parent, labels, body
)
SELECT created_at, updated_at, version, priority, kind, id, record.state, queue, parent, nullif(labels, '{}'),
    body
FROM interlock.record
WHERE ready_at IS NULL AND deadline_at IS NULL AND EXISTS (
    SELECT FROM interlock.state
    WHERE state.kind = record.kind AND state.name = record.state AND state.terminal
      AND NOT EXISTS (
          SELECT FROM interlock.path
          WHERE path.kind = state.kind AND path.source = state.name AND path.target <> state.name
      )
)
ORDER BY created_at, id;

DROP TABLE interlock.record;
DROP FUNCTION interlock.refuse_creation(), interlock.refuse_change(), interlock.refuse_removals();

-- The id first: it tells records apart at the first comparison.
ALTER TABLE interlock.spec ADD PRIMARY KEY (id, kind);
-- Half full, because a step of a record puts one more entry beside its first.
ALTER TABLE interlock.live ADD PRIMARY KEY (id, kind) WITH (fillfactor = 50);

-- Each index costs every step an entry; a partial one costs only those that are in it. A job that runs has a
-- deadline, so it is in two indexes: its key, and `live_by_deadline`, which also serves the list of its state.
CREATE INDEX live_by_lane ON interlock.live (kind, lane, rank, id)
    WITH (deduplicate_items = off) WHERE ready;
CREATE INDEX live_by_delay ON interlock.live (kind, ready_at) WHERE ready_at IS NOT NULL AND NOT ready;
CREATE INDEX live_by_deadline ON interlock.live (interlock.stretch(kind, state), deadline_at, id)
    WITH (deduplicate_items = off) WHERE deadline_at IS NOT NULL;
CREATE INDEX live_by_state ON interlock.live (interlock.stretch(kind, state), created_at, id)
    WITH (deduplicate_items = off) WHERE deadline_at IS NULL;
CREATE INDEX live_by_parent ON interlock.live (kind, parent, created_at, id)
    WITH (deduplicate_items = off) WHERE parent IS NOT NULL;
CREATE INDEX live_by_labels ON interlock.live (kind, labels, state, created_at, id) WHERE labels IS NOT NULL;

-- The only index that every end has an entry in. It serves lists and prune by state, and also finds a record
-- by its key: `spec` says when it was created, and the kind has few states (`kind.stretches`).
CREATE INDEX ended_by_state ON interlock.ended (interlock.stretch(kind, state), created_at, id)
    WITH (deduplicate_items = off);
CREATE INDEX ended_by_parent ON interlock.ended (kind, parent, created_at, id)
    WITH (deduplicate_items = off) WHERE parent IS NOT NULL;
CREATE INDEX ended_by_labels ON interlock.ended (kind, labels, state, created_at, id)
    WHERE labels IS NOT NULL;

-- Where each state of a kind stands in `ended_by_state`; kept by load_kind.sql.
ALTER TABLE interlock.kind ADD COLUMN stretches bigint[] NOT NULL DEFAULT '{}';
UPDATE interlock.kind SET stretches = ARRAY(
    SELECT interlock.stretch(state.kind, state.name) FROM interlock.state WHERE state.kind = kind.name
);

-- What `live` and `ended` have in common, for lists and counts. Lists by state name the two parts of `live`, which
-- have an index each, and `ended`: a part that had a condition in here could not be read in order.
CREATE VIEW interlock.kept_live AS
SELECT kind, id, state, version, body, result, parent, queue, labels, priority, ready_at, deadline_at,
    created_at, updated_at
FROM interlock.live;
CREATE VIEW interlock.kept_ended AS
SELECT kind, id, state, version, body, result, parent, queue, labels, priority, NULL::timestamptz AS ready_at,
    NULL::timestamptz AS deadline_at, created_at, updated_at
FROM interlock.ended;
CREATE VIEW interlock.kept AS
SELECT * FROM interlock.kept_live UNION ALL SELECT * FROM interlock.kept_ended;

-- For people: each record as one row.
CREATE VIEW interlock.record AS
SELECT live.created_at, coalesce(live.rank, 0) AS rank, live.ready, live.kind, live.id, live.state,
    coalesce(live.lane, '') AS lane, coalesce(live.labels, '{}') AS labels, live.ready_at, live.deadline_at,
    live.parent, live.queue, live.version, live.updated_at, live.priority, ''::text AS chain, live.body,
    spec.given, live.result
FROM interlock.live JOIN interlock.spec USING (id, kind)
UNION ALL
SELECT ended.created_at, 0, false, ended.kind, ended.id, ended.state,
    '', coalesce(ended.labels, '{}'), NULL, NULL,
    ended.parent, ended.queue, ended.version, ended.updated_at, ended.priority, '', ended.body,
    spec.given, ended.result
FROM interlock.ended JOIN interlock.spec USING (id, kind);

-- What the database itself refuses, also from a bare shell. A state is a check_violation, a removal a
-- restrict_violation. What the functions write they have compared with the table `path` before; they have the
-- setting `interlock.vouched` while they run. It is there against mistakes: a client that sets it by hand could
-- as well have dropped the triggers.
CREATE FUNCTION interlock.is_vouched() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT current_setting('interlock.vouched', true) IS NOT DISTINCT FROM 'on'
$$;

CREATE FUNCTION interlock.refuse_move(kind text, id text, source text, target text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF source IS DISTINCT FROM target AND NOT EXISTS (
        SELECT FROM interlock.path
        WHERE path.kind = refuse_move.kind AND path.source = refuse_move.source AND path.target = refuse_move.target
    ) THEN
        RAISE EXCEPTION '% % is % and cannot become %', kind, id, source, target
            USING ERRCODE = 'check_violation', HINT = 'No path of its table leads there; see the table path.';
    END IF;
END $$;

CREATE FUNCTION interlock.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.kind, NEW.id, NEW.created_at) IS DISTINCT FROM (OLD.kind, OLD.id, OLD.created_at) THEN
        RAISE EXCEPTION 'a record keeps its kind and id: % % was % %', NEW.kind, NEW.id, OLD.kind, OLD.id
            USING ERRCODE = 'check_violation';
    END IF;
    PERFORM interlock.refuse_move(NEW.kind, NEW.id, OLD.state, NEW.state);
    RETURN NULL;
END $$;

CREATE FUNCTION interlock.refuse_by_hand() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', HINT = 'Write to the view record: it keeps the tables together.';
END $$;

CREATE TRIGGER changes AFTER UPDATE ON interlock.live FOR EACH ROW
WHEN (
    NOT interlock.is_vouched()
    AND (OLD.state, OLD.kind, OLD.id, OLD.created_at) IS DISTINCT FROM (NEW.state, NEW.kind, NEW.id, NEW.created_at)
)
EXECUTE FUNCTION interlock.refuse_change();
CREATE TRIGGER by_hand BEFORE INSERT OR DELETE ON interlock.live FOR EACH STATEMENT
WHEN (NOT interlock.is_vouched()) EXECUTE FUNCTION interlock.refuse_by_hand();
CREATE TRIGGER by_hand BEFORE INSERT OR UPDATE OR DELETE ON interlock.ended FOR EACH STATEMENT
WHEN (NOT interlock.is_vouched()) EXECUTE FUNCTION interlock.refuse_by_hand();
CREATE TRIGGER by_hand BEFORE INSERT OR UPDATE OR DELETE ON interlock.spec FOR EACH STATEMENT
WHEN (NOT interlock.is_vouched()) EXECUTE FUNCTION interlock.refuse_by_hand();
CREATE TRIGGER emptying BEFORE TRUNCATE ON interlock.live
FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse_always();
CREATE TRIGGER emptying BEFORE TRUNCATE ON interlock.ended
FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse_always();
CREATE TRIGGER emptying BEFORE TRUNCATE ON interlock.spec
FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse_always();

-- Changes of the view by hand. What is changed is in `live` afterwards.
CREATE FUNCTION interlock.write_by_hand() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    vouched boolean := interlock.is_vouched();
    moment timestamptz := clock_timestamp();
    its_trail bytea;
BEGIN
    IF TG_OP = 'INSERT' AND NOT vouched THEN
        IF NEW.version IS DISTINCT FROM 1 THEN
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
    ELSIF TG_OP = 'UPDATE' AND NOT vouched THEN
        IF (NEW.kind, NEW.id) IS DISTINCT FROM (OLD.kind, OLD.id) THEN
            RAISE EXCEPTION 'a record keeps its kind and id: % % was % %', NEW.kind, NEW.id, OLD.kind, OLD.id
                USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.given::text IS DISTINCT FROM OLD.given::text THEN
            RAISE EXCEPTION 'what % % was created with can never be changed', OLD.kind, OLD.id
                USING ERRCODE = 'check_violation';
        END IF;
        PERFORM interlock.refuse_move(NEW.kind, NEW.id, OLD.state, NEW.state);
    ELSIF TG_OP = 'DELETE' AND NOT EXISTS (
        SELECT FROM interlock.state WHERE state.kind = OLD.kind AND state.name = OLD.state AND state.terminal
    ) THEN
        RAISE EXCEPTION '% % is % and alive: it is not removed', OLD.kind, OLD.id, OLD.state
            USING ERRCODE = 'restrict_violation', HINT = 'Only what has ended may be pruned.';
    END IF;

    PERFORM set_config('interlock.vouched', 'on', true);
    IF TG_OP = 'INSERT' THEN
        NEW.created_at := coalesce(NEW.created_at, moment);
        NEW.updated_at := coalesce(NEW.updated_at, moment);
        INSERT INTO interlock.spec VALUES (NEW.created_at, NEW.kind, NEW.id, NEW.given);
    ELSE
        DELETE FROM interlock.ended
        WHERE ended.id = OLD.id AND ended.kind = OLD.kind AND ended.created_at = OLD.created_at
          AND interlock.stretch(ended.kind, ended.state) = interlock.stretch(OLD.kind, OLD.state)
        RETURNING ended.trail INTO its_trail;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        UPDATE interlock.spec SET created_at = NEW.created_at WHERE spec.id = OLD.id AND spec.kind = OLD.kind
          AND spec.created_at <> NEW.created_at;
        UPDATE interlock.live SET
            created_at = NEW.created_at, updated_at = NEW.updated_at, version = NEW.version,
            rank = CASE WHEN NEW.ready_at IS NOT NULL THEN NEW.rank END, ready_at = NEW.ready_at,
            deadline_at = NEW.deadline_at, priority = NEW.priority, ready = NEW.ready, state = NEW.state,
            lane = CASE WHEN NEW.ready_at IS NOT NULL THEN NEW.lane END, queue = NEW.queue, parent = NEW.parent,
            labels = nullif(NEW.labels, '{}'), body = NEW.body, result = NEW.result
        WHERE live.id = OLD.id AND live.kind = OLD.kind;
    ELSIF TG_OP = 'DELETE' THEN
        DELETE FROM interlock.live WHERE live.id = OLD.id AND live.kind = OLD.kind;
        DELETE FROM interlock.spec WHERE spec.id = OLD.id AND spec.kind = OLD.kind;
    END IF;
    IF TG_OP = 'INSERT' OR TG_OP = 'UPDATE' AND NOT FOUND THEN
        INSERT INTO interlock.live (
            created_at, updated_at, version, rank, ready_at, deadline_at, priority, ready, kind, id, state, lane,
            queue, parent, labels, body, result, trail
        )
        VALUES (
            NEW.created_at, NEW.updated_at, NEW.version,
            CASE WHEN NEW.ready_at IS NOT NULL THEN NEW.rank END, NEW.ready_at, NEW.deadline_at,
            coalesce(NEW.priority, 0), coalesce(NEW.ready, false), NEW.kind, NEW.id, NEW.state,
            CASE WHEN NEW.ready_at IS NOT NULL THEN NEW.lane END,
            NEW.queue, NEW.parent, nullif(NEW.labels, '{}'), NEW.body, NEW.result,
            coalesce(its_trail, '')
        );
    END IF;
    PERFORM set_config('interlock.vouched', CASE WHEN vouched THEN 'on' ELSE 'off' END, true);
    RETURN coalesce(NEW, OLD);
END $$;
CREATE TRIGGER by_hand INSTEAD OF INSERT OR UPDATE OR DELETE ON interlock.record
FOR EACH ROW EXECUTE FUNCTION interlock.write_by_hand();
