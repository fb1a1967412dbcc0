-- incompatible
-- A record is kept in two tables. `record_given` has what it was created with, and is written once; only its
-- queue, parent, labels and priority can change, and seldom do. `record_state` has what changes, in the order
-- of states: its key is the place of the state, times 1099511627776, and the number of the record. So a step
-- takes a row from one stretch of that table to another, a state is listed in the order of creation without
-- an index, and what has ended lies apart from what lives, whichever states are ends.
--
-- The view `records` joins the two. It takes inserts, updates and deletes from a shell.

DROP VIEW records_view;
DROP VIEW journal_view;
DROP VIEW made_by_hand;

CREATE TABLE record_given (
  number INTEGER PRIMARY KEY,
  created_us INTEGER NOT NULL,
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  queue TEXT,
  parent TEXT,
  labels TEXT, -- a list as JSON; NULL for none
  priority INTEGER NOT NULL DEFAULT 0,
  given BLOB NOT NULL DEFAULT x'' CHECK (typeof(given) = 'blob')
);

CREATE TABLE record_state (
  key INTEGER PRIMARY KEY,
  version INTEGER NOT NULL,
  updated_us INTEGER NOT NULL,
  body BLOB NOT NULL CHECK (typeof(body) = 'blob'),
  result BLOB NOT NULL DEFAULT x'' CHECK (typeof(result) = 'blob'),
  trail TEXT NOT NULL DEFAULT '', -- the rows of the journal that tell of it with others, by their sequence
  deadline_us INTEGER,
  ready_us INTEGER,
  -- What the index of ready records needs; NULL where ready_us is.
  lane TEXT, -- kind, queue and labels
  priority INTEGER,
  handler TEXT,
  id TEXT
);

INSERT INTO record_given
SELECT number, created_us, kind, id, queue, parent, nullif(labels, '[]'), priority, x'' FROM records;

INSERT INTO record_state (key, version, updated_us, body, deadline_us, ready_us, lane, priority, handler, id)
SELECT
  (states.place << 40) + number, version, updated_us, body, deadline_us, ready_us,
  iif(ready_us IS NULL, NULL, lane), iif(ready_us IS NULL, NULL, priority),
  iif(ready_us IS NULL, NULL, handler), iif(ready_us IS NULL, NULL, id)
FROM records JOIN states ON states.kind = records.kind AND states.name = records.state
ORDER BY 1;

CREATE UNIQUE INDEX record_given_by_key ON record_given (kind, id);
CREATE INDEX record_given_by_parent ON record_given (kind, parent) WHERE parent IS NOT NULL;
CREATE INDEX record_state_by_deadline ON record_state (key >> 40, deadline_us) WHERE deadline_us IS NOT NULL;
-- Within a lane, a priority and a handler, rank is time: so this one index gives the next record to claim.
CREATE INDEX record_state_by_lane ON record_state (lane, priority, handler, ready_us, id)
WHERE ready_us IS NOT NULL;

-- One row for all entries that say the same about records of one version: `size` of them, of which `sequence`
-- is the last. They are about the records from number `record` on, or those in `members`. An entry of its own
-- has a size of 1; then `record` is 0 where there was no record, and `id` says which was meant.
CREATE TABLE journal_rows (
  sequence INTEGER PRIMARY KEY,
  size INTEGER NOT NULL DEFAULT 1,
  remaining INTEGER NOT NULL DEFAULT 1, -- entries whose records were not pruned
  at_us INTEGER NOT NULL,
  record INTEGER NOT NULL DEFAULT 0,
  members TEXT, -- numbers of records as JSON, in the order of their entries
  kind TEXT NOT NULL,
  id TEXT,
  version INTEGER NOT NULL,
  steps TEXT NOT NULL,
  actor TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  cause TEXT NOT NULL DEFAULT '',
  request_id TEXT NOT NULL DEFAULT '',
  refusal TEXT NOT NULL DEFAULT ''
);

INSERT INTO journal_rows
  (sequence, at_us, record, kind, id, version, steps, actor, reason, cause, request_id, refusal)
SELECT
  sequence, at_us, record, kind, iif(EXISTS (SELECT 1 FROM records WHERE number = record), NULL, id),
  version, steps, actor, reason, cause, request_id, refusal
FROM journal ORDER BY sequence;

CREATE INDEX journal_rows_by_record ON journal_rows (record, version) WHERE size = 1 AND record > 0;
CREATE INDEX journal_rows_by_name ON journal_rows (kind, id) WHERE record = 0;

-- The highest number that a record was given; none is given twice.
ALTER TABLE progress ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
UPDATE progress SET number = max(
  ifnull((SELECT max(number) FROM records), 0), ifnull((SELECT max(record) FROM journal), 0)
);

DROP TABLE records;
DROP TABLE journal;

-- What the tables do not allow is refused here as well, whoever asks.

-- INSERT OR REPLACE would take the old row away without asking the triggers for updates and deletes.
CREATE TRIGGER record_given_is_not_replaced BEFORE INSERT ON record_given
WHEN EXISTS (SELECT 1 FROM record_given WHERE kind = NEW.kind AND id = NEW.id)
  OR EXISTS (SELECT 1 FROM record_given WHERE number = NEW.number)
BEGIN
  SELECT RAISE(ABORT, 'interlock: this record is there already; update it');
END;

CREATE TRIGGER record_given_stays BEFORE UPDATE OF number, created_us, kind, id, given ON record_given
BEGIN
  SELECT RAISE(ABORT, 'interlock: a record keeps its kind and id, and what it was given');
END;

CREATE TRIGGER record_given_goes_with_its_state BEFORE DELETE ON record_given
WHEN EXISTS (
  SELECT 1 FROM states CROSS JOIN record_state ON key = (place << 40) + OLD.number WHERE kind = OLD.kind
)
BEGIN
  SELECT RAISE(ABORT, 'interlock: what a record was given goes with its state; delete it from records');
END;

-- Only a record whose number is new can begin, so none has two states.
CREATE TRIGGER record_state_begins_as_the_table_says AFTER INSERT ON record_state
WHEN NEW.key & 1099511627775 <= (SELECT number FROM progress)
  OR NOT EXISTS (
    SELECT 1 FROM record_given AS given CROSS JOIN paths ON step = NEW.key >> 40 AND paths.kind = given.kind
    WHERE given.number = NEW.key & 1099511627775
  )
BEGIN
  SELECT RAISE(ABORT, 'interlock: no record can begin so; insert it into records');
END;

CREATE TRIGGER record_state_moves_as_the_table_says AFTER UPDATE OF key ON record_state
WHEN OLD.key & 1099511627775 <> NEW.key & 1099511627775
  OR NOT EXISTS (SELECT 1 FROM paths WHERE step = (OLD.key >> 40) * 1048576 + (NEW.key >> 40))
BEGIN
  SELECT RAISE(ABORT, 'interlock: no path of the table leads from the one state to the other');
END;

CREATE TRIGGER record_state_goes_when_it_is_an_end BEFORE DELETE ON record_state
WHEN NOT EXISTS (SELECT 1 FROM states WHERE place = OLD.key >> 40 AND terminal)
BEGIN
  SELECT RAISE(ABORT, 'interlock: the record is alive; only what has ended is removed');
END;

CREATE TRIGGER record_state_takes_what_was_given_with_it AFTER DELETE ON record_state
BEGIN
  DELETE FROM record_given WHERE number = OLD.key & 1099511627775;
END;

CREATE TRIGGER journal_is_not_rewritten BEFORE UPDATE ON journal_rows
WHEN NEW.remaining >= OLD.remaining OR (
  OLD.sequence, OLD.size, OLD.at_us, OLD.record, OLD.members, OLD.kind, OLD.id, OLD.version,
  OLD.steps, OLD.actor, OLD.reason, OLD.cause, OLD.request_id, OLD.refusal
) IS NOT (
  NEW.sequence, NEW.size, NEW.at_us, NEW.record, NEW.members, NEW.kind, NEW.id, NEW.version,
  NEW.steps, NEW.actor, NEW.reason, NEW.cause, NEW.request_id, NEW.refusal
)
BEGIN
  SELECT RAISE(ABORT, 'interlock: the journal is not rewritten');
END;

CREATE TRIGGER journal_goes_with_its_records BEFORE DELETE ON journal_rows
WHEN EXISTS (
  SELECT 1 FROM record_given
  WHERE OLD.members IS NULL AND number BETWEEN OLD.record AND OLD.record + OLD.size - 1
) OR EXISTS (
  SELECT 1 FROM json_each(OLD.members) AS member CROSS JOIN record_given ON number = member.value
) OR EXISTS (
  SELECT 1 FROM record_given WHERE OLD.record = 0 AND kind = OLD.kind AND id = OLD.id
)
BEGIN
  SELECT RAISE(ABORT, 'interlock: the journal of a record goes when the record goes');
END;

-- What a shell writes is judged by name, and is told what is wrong.

CREATE VIEW records AS
SELECT
  given.number AS number, given.kind AS kind, given.id AS id, states.name AS state, version,
  given.given AS given, body, result, parent, queue, ifnull(labels, '[]') AS labels,
  given.priority AS priority, handler, ready_us, deadline_us, created_us, updated_us
FROM record_state
CROSS JOIN record_given AS given ON given.number = record_state.key & 1099511627775
CROSS JOIN states ON states.place = record_state.key >> 40;

CREATE VIEW moves_by_hand (kind, source, target) AS SELECT '', '', '' WHERE 0;

CREATE TRIGGER moves_by_hand_are_judged_by_name INSTEAD OF INSERT ON moves_by_hand
BEGIN
  SELECT CASE
    WHEN NEW.source = NEW.target AND NEW.target <> '' THEN NULL
    WHEN EXISTS (SELECT 1 FROM paths WHERE kind = NEW.kind AND source = NEW.source AND target = NEW.target)
      THEN NULL
    WHEN NOT EXISTS (SELECT 1 FROM kinds WHERE name = NEW.kind)
      THEN RAISE(ABORT, 'interlock: there is no such kind of record')
    WHEN NOT EXISTS (SELECT 1 FROM states WHERE kind = NEW.kind AND name = NEW.target AND known)
      THEN RAISE(ABORT, 'interlock: this kind has no such state')
    WHEN NEW.source = ''
      THEN RAISE(ABORT, 'interlock: no record can begin in this state')
    WHEN EXISTS (SELECT 1 FROM states WHERE kind = NEW.kind AND name = NEW.source AND terminal)
      THEN RAISE(ABORT, 'interlock: the record has ended, and no path of the table leads out of that')
    ELSE RAISE(ABORT, 'interlock: no path of the table leads from the one state to the other')
  END;
END;

-- Records are listed by their numbers, so a new one gets the next number and the latest time.
CREATE TRIGGER records_are_created_by_hand INSTEAD OF INSERT ON records
BEGIN
  SELECT RAISE(ABORT, 'interlock: this record is there already; update it')
  WHERE EXISTS (SELECT 1 FROM record_given WHERE kind = NEW.kind AND id = NEW.id)
    OR EXISTS (SELECT 1 FROM record_given WHERE number = NEW.number);
  INSERT INTO moves_by_hand VALUES (NEW.kind, '', NEW.state);
  INSERT INTO record_given
  SELECT
    number + 1, latest_us, NEW.kind, NEW.id, NEW.queue, NEW.parent, nullif(NEW.labels, '[]'),
    ifnull(NEW.priority, 0), ifnull(NEW.given, x'')
  FROM progress;
  INSERT INTO record_state (key, version, updated_us, body, result, deadline_us)
  SELECT
    (place << 40) + number + 1, NEW.version, NEW.updated_us, NEW.body, ifnull(NEW.result, x''),
    NEW.deadline_us
  FROM states, progress WHERE kind = NEW.kind AND name = NEW.state;
  UPDATE progress SET number = number + 1;
  UPDATE records SET ready_us = NEW.ready_us, handler = NEW.handler
  WHERE kind = NEW.kind AND id = NEW.id AND NEW.ready_us IS NOT NULL;
END;

CREATE TRIGGER records_are_changed_by_hand INSTEAD OF UPDATE ON records
BEGIN
  SELECT RAISE(ABORT, 'interlock: a record keeps its kind and id, and what it was given')
  WHERE (OLD.number, OLD.kind, OLD.id, OLD.given, OLD.created_us)
    IS NOT (NEW.number, NEW.kind, NEW.id, NEW.given, NEW.created_us);
  INSERT INTO moves_by_hand VALUES (NEW.kind, OLD.state, NEW.state);
  UPDATE record_given
  SET queue = NEW.queue, parent = NEW.parent, labels = nullif(NEW.labels, '[]'), priority = NEW.priority
  WHERE number = NEW.number;
  UPDATE record_state
  SET
    version = NEW.version, updated_us = NEW.updated_us, body = NEW.body, result = NEW.result,
    deadline_us = NEW.deadline_us, ready_us = NEW.ready_us,
    lane = iif(NEW.ready_us IS NULL, NULL, (
      SELECT group_concat(part, char(31)) FROM (
        SELECT NEW.kind AS part
        UNION ALL SELECT ifnull(NEW.queue, '')
        UNION ALL SELECT value FROM json_each(NEW.labels)
      )
    )),
    priority = iif(NEW.ready_us IS NULL, NULL, NEW.priority),
    handler = iif(NEW.ready_us IS NULL, NULL, ifnull(NEW.handler, '')),
    id = iif(NEW.ready_us IS NULL, NULL, NEW.id)
  WHERE key = ((SELECT place FROM states WHERE kind = OLD.kind AND name = OLD.state) << 40) + NEW.number;
  UPDATE record_state
  SET key = ((SELECT place FROM states WHERE kind = NEW.kind AND name = NEW.state) << 40) + NEW.number
  WHERE OLD.state <> NEW.state
    AND key = ((SELECT place FROM states WHERE kind = OLD.kind AND name = OLD.state) << 40) + NEW.number;
END;

CREATE TRIGGER records_are_removed_by_hand INSTEAD OF DELETE ON records
BEGIN
  DELETE FROM record_state
  WHERE key = ((SELECT place FROM states WHERE kind = OLD.kind AND name = OLD.state) << 40) + OLD.number;
END;

CREATE VIEW records_view AS
SELECT
  kind, id, state, version, parent, queue, labels, priority,
  strftime('%Y-%m-%d %H:%M:%S', ready_us / 1000000, 'unixepoch')
    || printf('.%06d', ready_us % 1000000) AS ready_at,
  strftime('%Y-%m-%d %H:%M:%S', deadline_us / 1000000, 'unixepoch')
    || printf('.%06d', deadline_us % 1000000) AS deadline_at,
  strftime('%Y-%m-%d %H:%M:%S', created_us / 1000000, 'unixepoch')
    || printf('.%06d', created_us % 1000000) AS created_at,
  strftime('%Y-%m-%d %H:%M:%S', updated_us / 1000000, 'unixepoch')
    || printf('.%06d', updated_us % 1000000) AS updated_at,
  CAST(given AS TEXT) AS given, CAST(body AS TEXT) AS body, CAST(result AS TEXT) AS result
FROM records;

CREATE VIEW journal_view AS
SELECT
  entry.sequence AS sequence,
  strftime('%Y-%m-%d %H:%M:%S', at_us / 1000000, 'unixepoch') || printf('.%06d', at_us % 1000000) AS at,
  kind, entry.id AS id, version, steps, actor, reason, cause, request_id, refusal
FROM (
  SELECT
    journal_rows.sequence - size + 1 + number - record AS sequence,
    journal_rows.sequence AS of,
    given.id AS id
  FROM journal_rows CROSS JOIN record_given AS given ON number BETWEEN record AND record + size - 1
  WHERE members IS NULL
  UNION ALL
  SELECT journal_rows.sequence - size + 1 + member.key, journal_rows.sequence, given.id
  FROM journal_rows CROSS JOIN json_each(members) AS member CROSS JOIN record_given AS given
    ON given.number = member.value
  UNION ALL
  SELECT sequence, sequence, id FROM journal_rows WHERE id IS NOT NULL
) AS entry
JOIN journal_rows ON journal_rows.sequence = entry.of;
