-- The tables. Keys compare byte by byte (COLLATE "C"): the order is then that of the program, the
-- same on every host, and a change of the system's locale cannot break an index.

-- One row about the database as a whole.
CREATE TABLE interlock.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    application text NOT NULL DEFAULT 'interlock' CHECK (application = 'interlock'),
    schema_version integer NOT NULL,
    -- See identity() in 0005: what tells this server from the one it may have replaced.
    server text NOT NULL DEFAULT '',
    epoch bigint NOT NULL DEFAULT 0,
    -- What is added to a transaction id before the journal keeps it. A dump that is restored on
    -- another server starts there with small ids again; the order of the journal must go on.
    xact_offset bigint NOT NULL DEFAULT 0,
    -- The place of the last journal entry that was ever pruned: who has not read it has a gap.
    pruned_xact bigint NOT NULL DEFAULT 0,
    pruned_entry bigint NOT NULL DEFAULT 0
);
INSERT INTO interlock.meta (schema_version) VALUES (0);

CREATE TABLE interlock.kind (
    name text COLLATE "C" PRIMARY KEY,
    initial text NOT NULL,
    digest text NOT NULL
);

CREATE TABLE interlock.state (
    kind text COLLATE "C" NOT NULL REFERENCES interlock.kind ON DELETE CASCADE,
    name text COLLATE "C" NOT NULL,
    terminal boolean NOT NULL,
    PRIMARY KEY (kind, name)
);

-- What may become what in one commit; a source of '' means that a record may be created so.
CREATE TABLE interlock.path (
    kind text COLLATE "C" NOT NULL REFERENCES interlock.kind ON DELETE CASCADE,
    source text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, source, target)
);
CREATE INDEX path_by_target ON interlock.path (kind, target, source);

-- The aggregates. `json`, not `jsonb`: the body comes back byte for byte, is checked to be JSON,
-- and is readable from a shell.
--
-- What indexes hold comes first, and of that what always has the same width: before each update the server
-- looks at every indexed column of both versions, and gets at it past all that stands before it.
CREATE TABLE interlock.record (
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The order within a lane: see interlock/store/ranking.py.
    rank bigint NOT NULL DEFAULT 0,
    -- ready_at has passed. A delayed record is none of the claims' business until it is promoted.
    ready boolean NOT NULL DEFAULT false,
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    -- Queue and labels in one word: see interlock/store/ranking.py.
    lane text COLLATE "C" NOT NULL DEFAULT '',
    labels text[] NOT NULL DEFAULT '{}',
    ready_at timestamptz,
    deadline_at timestamptz,
    parent text COLLATE "C",
    queue text COLLATE "C",
    version bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    priority integer NOT NULL DEFAULT 0,
    chain text NOT NULL DEFAULT '',
    body json NOT NULL,
    -- The id first: it tells records apart at the first comparison. Half full, because every step of a record
    -- puts one more entry beside its first, which stays until it is cleaned up.
    PRIMARY KEY (id, kind) WITH (fillfactor = 50)
)
-- Every step changes the state, which an index holds, so no update is HOT. (Keeping the state, the queue and
-- the deadlines in narrow tables of their own, so that they could be, would cost as much as it saves.) But
-- with some room a new version stays on its page, and the page is cleaned as it is used.
-- Dead versions at the head of the queue are what makes claims slow: vacuum early, do not pause.
WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 1000
);

-- Where the records of a kind that are in a state stand in an index: one number for the two words, which is
-- compared in a tenth of the time. Two of which the numbers are the same stand among each other, so who looks
-- for the one still has to say which it wants. All states of a kind are together in the upper half.
--
-- The functions that the server itself spreads partitions by: they stay what they are.
CREATE FUNCTION interlock.stretch(kind text, state text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (hashtextextended(kind COLLATE "C", 0) & -4294967296)
        | (hashtextextended(state COLLATE "C", 0) & 4294967295)
$$;

-- Each index costs every step an insertion. Partial ones cost only those who are in them. They end with
-- the id and hold nothing twice, so nobody has to look for what could be stored once.
CREATE INDEX record_by_lane ON interlock.record (kind, lane, rank, id)
    WITH (deduplicate_items = off) WHERE ready;
CREATE INDEX record_by_delay ON interlock.record (kind, ready_at) WHERE ready_at IS NOT NULL AND NOT ready;
CREATE INDEX record_by_deadline ON interlock.record (interlock.stretch(kind, ''), deadline_at, id)
    WITH (deduplicate_items = off) WHERE deadline_at IS NOT NULL;
CREATE INDEX record_by_parent ON interlock.record (kind, parent, created_at, id)
    WITH (deduplicate_items = off) WHERE parent IS NOT NULL;
--
-- One index serves lists with and without a state, prune and status: each state has a stretch of it, in
-- the order of creation, and a list of several states merges theirs.
CREATE INDEX record_by_state ON interlock.record (interlock.stretch(kind, state), created_at, id)
    WITH (deduplicate_items = off);

-- Lists by label. Only records that have one are in this index, so the others do not pay for it. It has a
-- stretch for each set of labels and state that there is, in the order of creation: who asks for a label
-- jumps from one to the next, and merges those whose set has it.
--
-- An inverted index would find the records of a label as well, but all of them at once, in no order: the
-- newest fifty of a label that a fiftieth of a million has took 100 times as long.
CREATE INDEX record_by_labels ON interlock.record (kind, labels, state, created_at, id)
    WHERE labels <> '{}';

-- What happened, one row per record and commit.
--
-- Numbers from a sequence become visible out of order. So the order is by transaction first, and
-- readers are shown only transactions below the oldest one that is still running: nothing is ever
-- inserted before a place that somebody has read up to.
CREATE TABLE interlock.journal (
    xact bigint NOT NULL,
    -- Without a cache: entries of one record and version are told in the order of these numbers.
    entry bigint GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL,
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    note json NOT NULL,
    chain text NOT NULL DEFAULT '',
    PRIMARY KEY (xact, entry)
)
WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
-- Not by kind: that an id belongs to several kinds is rare, and every entry would be larger for it.
-- A third full: most records get two more entries, next to the one that tells of their creation.
CREATE INDEX journal_by_record ON interlock.journal (id, version)
    WITH (deduplicate_items = off, fillfactor = 35);

-- What was asked under an id, and what was answered. The answer is bytes: it need not be JSON.
CREATE TABLE interlock.request (
    id text COLLATE "C" PRIMARY KEY,
    endpoint text NOT NULL,
    fingerprint text NOT NULL,
    status integer NOT NULL,
    body bytea NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
)
WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX request_by_expiry ON interlock.request (expires_at);

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
