CREATE INDEX journal_by_record ON journal (record, version);
CREATE INDEX journal_without_record ON journal (kind, id) WHERE record = 0;
CREATE INDEX records_by_deadline ON records (place, deadline_us) WHERE deadline_us IS NOT NULL;
CREATE UNIQUE INDEX records_by_key ON records (kind, id);
CREATE INDEX records_by_lane ON records (lane, priority, handler, ready_us, id) WHERE ready_us IS NOT NULL;
CREATE INDEX records_by_parent ON records (kind, parent) WHERE parent IS NOT NULL;
CREATE INDEX records_by_place ON records (place);
CREATE INDEX requests_by_expiry ON requests (expires_us);
CREATE TABLE applied_migrations (
  number INTEGER PRIMARY KEY,
  fingerprint TEXT NOT NULL
);
CREATE TABLE interlock_schema (
  number INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  applied_us INTEGER NOT NULL
);
CREATE TABLE journal (
  sequence INTEGER PRIMARY KEY,
  at_us INTEGER NOT NULL,
  record INTEGER NOT NULL DEFAULT 0,
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  version INTEGER NOT NULL,
  steps TEXT NOT NULL,
  actor TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  cause TEXT NOT NULL DEFAULT '',
  request_id TEXT NOT NULL DEFAULT '',
  refusal TEXT NOT NULL DEFAULT '',
  chain TEXT NOT NULL DEFAULT ''
);
CREATE TABLE kinds (
  name TEXT PRIMARY KEY,
  fingerprint TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE paths (
  step INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  source TEXT NOT NULL,
  target TEXT NOT NULL,
  UNIQUE (kind, source, target)
);
CREATE TABLE progress (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  sequence INTEGER NOT NULL,
  pruned_up_to INTEGER NOT NULL,
  latest_us INTEGER NOT NULL,
  epoch INTEGER NOT NULL
, identity TEXT NOT NULL DEFAULT '');
CREATE TABLE records (
  number INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  state TEXT NOT NULL,
  place INTEGER, -- of kind and state; what a shell leaves out is put in
  version INTEGER NOT NULL,
  body BLOB NOT NULL CHECK (typeof(body) = 'blob'),
  parent TEXT,
  queue TEXT,
  labels TEXT NOT NULL DEFAULT '[]',
  priority INTEGER NOT NULL DEFAULT 0,
  lane TEXT, -- kind, queue and labels, where ready_us is set
  ready_us INTEGER,
  deadline_us INTEGER,
  chain TEXT NOT NULL DEFAULT '',
  created_us INTEGER NOT NULL,
  updated_us INTEGER NOT NULL
, handler TEXT NOT NULL DEFAULT '');
CREATE TABLE requests (
  id TEXT PRIMARY KEY,
  endpoint TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  status INTEGER NOT NULL,
  body BLOB NOT NULL,
  created_us INTEGER NOT NULL,
  expires_us INTEGER NOT NULL
);
CREATE TABLE states (
  place INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  terminal INTEGER NOT NULL,
  known INTEGER NOT NULL DEFAULT 1,
  UNIQUE (kind, name)
);
CREATE TRIGGER changes_by_hand_are_judged_by_name INSTEAD OF INSERT ON made_by_hand
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
  -- Records are listed by their numbers, so their times have to be in the same order.
  UPDATE records SET created_us = (SELECT latest_us FROM progress)
  WHERE number = NEW.number AND NEW.source = '';
  UPDATE records SET place = (SELECT place FROM states WHERE kind = NEW.kind AND name = NEW.target)
  WHERE number = NEW.number
    AND place IS NOT (SELECT place FROM states WHERE kind = NEW.kind AND name = NEW.target);
END;
CREATE TRIGGER journal_goes_with_its_record BEFORE DELETE ON journal
WHEN EXISTS (SELECT 1 FROM records WHERE kind = OLD.kind AND id = OLD.id)
BEGIN
  SELECT RAISE(ABORT, 'interlock: the journal of a record goes when the record goes');
END;
CREATE TRIGGER journal_is_not_rewritten BEFORE UPDATE ON journal
BEGIN
  SELECT RAISE(ABORT, 'interlock: the journal is not rewritten');
END;
CREATE TRIGGER records_are_created_as_the_table_says AFTER INSERT ON records
WHEN NOT EXISTS (SELECT 1 FROM paths WHERE step = NEW.place AND target = NEW.state AND kind = NEW.kind)
BEGIN
  INSERT INTO made_by_hand VALUES (NEW.number, NEW.kind, '', NEW.state);
END;
CREATE TRIGGER records_are_not_replaced BEFORE INSERT ON records
WHEN EXISTS (SELECT 1 FROM records WHERE kind = NEW.kind AND id = NEW.id)
  OR EXISTS (SELECT 1 FROM records WHERE number = NEW.number)
BEGIN
  SELECT RAISE(ABORT, 'interlock: this record is there already; update it');
END;
CREATE TRIGGER records_are_removed_when_they_have_ended BEFORE DELETE ON records
WHEN NOT EXISTS (SELECT 1 FROM states WHERE kind = OLD.kind AND name = OLD.state AND terminal)
BEGIN
  SELECT RAISE(ABORT, 'interlock: the record is alive; only what has ended is removed');
END;
CREATE TRIGGER records_keep_their_names BEFORE UPDATE OF number, kind, id ON records
WHEN OLD.number IS NOT NEW.number OR OLD.kind IS NOT NEW.kind OR OLD.id IS NOT NEW.id
BEGIN
  SELECT RAISE(ABORT, 'interlock: a record keeps its kind and id');
END;
CREATE TRIGGER records_move_as_the_table_says AFTER UPDATE OF state, place ON records
WHEN NOT EXISTS (SELECT 1 FROM paths WHERE step = OLD.place * 1048576 + NEW.place AND target = NEW.state)
BEGIN
  INSERT INTO made_by_hand VALUES (NEW.number, NEW.kind, OLD.state, NEW.state);
END;
CREATE VIEW journal_view AS
SELECT
  sequence,
  strftime('%Y-%m-%d %H:%M:%S', at_us / 1000000, 'unixepoch') || printf('.%06d', at_us % 1000000) AS at,
  kind, id, version, steps, actor, reason, cause, request_id, refusal
FROM journal;
CREATE VIEW made_by_hand (number, kind, source, target) AS SELECT 0, '', '', '' WHERE 0;
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
  CAST(body AS TEXT) AS body
FROM records;
