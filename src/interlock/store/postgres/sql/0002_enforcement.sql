-- What the database itself refuses, also from a bare shell. A state is a check_violation, a removal a
-- restrict_violation.
--
-- What is written by way of `write_wave` is compared with the table there, once for all rows that make the
-- same move, and not a second time by a trigger. Triggers that are shown all rows of a statement, before and
-- after, had cost an eighth of what the server spends on a claim and a completion: it copies the rows for them.
--
-- Who writes by hand is met by triggers, row by row: they ask for a setting that only the function has, for as
-- long as it runs. It is there against mistakes. Who sets it by hand to get past them could as well have
-- dropped them.
--
-- Removals are rare and looked at by statement. The transition tables have no statistics, and a plan made for
-- one row must also do for a thousand: joins among them are hashed, never nested.

CREATE FUNCTION interlock.refuse_creation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.version <> 1 THEN
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
    RETURN NULL;
END $$;

CREATE FUNCTION interlock.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.kind, NEW.id) <> (OLD.kind, OLD.id) THEN
        RAISE EXCEPTION 'a record keeps its kind and id: % % was % %', NEW.kind, NEW.id, OLD.kind, OLD.id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NOT EXISTS (
        SELECT FROM interlock.path
        WHERE path.kind = NEW.kind AND path.source = OLD.state AND path.target = NEW.state
    ) THEN
        RAISE EXCEPTION '% % is % and cannot become %', NEW.kind, NEW.id, OLD.state, NEW.state
            USING ERRCODE = 'check_violation', HINT = 'No path of its table leads there; see the table path.';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION interlock.refuse_removals() RETURNS trigger LANGUAGE plpgsql
SET enable_hashjoin = on SET enable_nestloop = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    wrong record;
BEGIN
    SELECT gone.kind, gone.id, gone.state INTO wrong FROM gone
    WHERE (SELECT count(*) FROM interlock.state
           WHERE state.kind = gone.kind AND state.name = gone.state AND state.terminal) = 0
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% % is % and alive: it is not removed', wrong.kind, wrong.id, wrong.state
            USING ERRCODE = 'restrict_violation', HINT = 'Only what has ended may be pruned.';
    END IF;
    RETURN NULL;
END $$;

-- The journal only grows, until the record it tells of has been pruned.
CREATE FUNCTION interlock.refuse_forgetting() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wrong record;
BEGIN
    SELECT gone.kind, gone.id INTO wrong FROM gone
    WHERE (SELECT count(*) FROM interlock.record
           WHERE record.kind = gone.kind AND record.id = gone.id) > 0
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the journal of % % goes when the record does, not before', wrong.kind, wrong.id
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION interlock.refuse_always() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER creations AFTER INSERT ON interlock.record FOR EACH ROW
WHEN (current_setting('interlock.vouched', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION interlock.refuse_creation();
CREATE TRIGGER changes AFTER UPDATE ON interlock.record FOR EACH ROW
WHEN (
    current_setting('interlock.vouched', true) IS DISTINCT FROM 'on'
    AND (OLD.state, OLD.kind, OLD.id) IS DISTINCT FROM (NEW.state, NEW.kind, NEW.id)
)
EXECUTE FUNCTION interlock.refuse_change();
CREATE TRIGGER removals AFTER DELETE ON interlock.record REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse_removals();
CREATE TRIGGER emptying BEFORE TRUNCATE ON interlock.record
FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse_always();

CREATE TRIGGER rewriting BEFORE UPDATE OR TRUNCATE ON interlock.journal
FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse_always();
CREATE TRIGGER forgetting AFTER DELETE ON interlock.journal REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse_forgetting();
