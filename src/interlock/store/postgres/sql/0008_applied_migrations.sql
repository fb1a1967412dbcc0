-- Which migrations were applied, and with which text: a program that has another text under the same number
-- refuses the database. The rows of 0001 to 0007 are added together with that of this one.
CREATE TABLE interlock.applied_migration (
    number integer PRIMARY KEY,
    name text NOT NULL,
    fingerprint text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
