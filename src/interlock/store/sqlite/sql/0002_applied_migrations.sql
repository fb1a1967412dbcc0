-- Which text each migration was applied with: a program that has another text under the same number refuses
-- the database. The row of 0001 is added together with that of this one.
CREATE TABLE applied_migrations (
  number INTEGER PRIMARY KEY,
  fingerprint TEXT NOT NULL
);

-- The first files had this index by kind; deadlines are looked for by place.
DROP INDEX records_by_deadline;
CREATE INDEX records_by_deadline ON records (place, deadline_us) WHERE deadline_us IS NOT NULL;
