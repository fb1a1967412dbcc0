-- What the database itself refuses, also from a bare shell: checked once per statement, on all the
-- rows that the statement touched. A state is a check_violation, a removal a restrict_violation.
--
-- The transition tables have no statistics, and a plan made for one row must also do for a
-- thousand: joins among them are hashed, never nested. The records of a statement mostly make the same
-- move, so moves are gathered first, and each is looked up once.

CREATE FUNCTION interlock.refuse_creations() RETURNS trigger LANGUAGE plpgsql
SET enable_hashjoin = on SET enable_nestloop = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    wrong record;
BEGIN
    SELECT fresh.kind, fresh.id, fresh.state, fresh.version INTO wrong
    FROM (
        SELECT fresh.kind, fresh.state, fresh.version, min(fresh.id) AS id
        FROM fresh GROUP BY fresh.kind, fresh.state, fresh.version
    ) AS fresh
    WHERE fresh.version <> 1 OR (SELECT count(*) FROM interlock.path
           WHERE path.kind = fresh.kind AND path.source = '' AND path.target = fresh.state) = 0
    LIMIT 1;
    IF FOUND AND wrong.version <> 1 THEN
        RAISE EXCEPTION 'a % cannot be created in version % (%)', wrong.kind, wrong.version, wrong.id
            USING ERRCODE = 'check_violation', HINT = 'A record begins with version 1.';
    END IF;
    IF FOUND THEN
        RAISE EXCEPTION 'a % cannot be created as % (%)', wrong.kind, wrong.state, wrong.id
            USING ERRCODE = 'check_violation', HINT = 'See the tables kind, state and path for what may be.';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION interlock.refuse_changes() RETURNS trigger LANGUAGE plpgsql
SET enable_hashjoin = on SET enable_nestloop = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    wrong record;
BEGIN
    SELECT moved.kind, moved.id, moved.source, moved.target INTO wrong
    FROM (
        SELECT after.kind, before.state AS source, after.state AS target, min(after.id) AS id
        FROM after LEFT JOIN before ON before.id = after.id AND before.kind = after.kind
        GROUP BY after.kind, before.state, after.state
    ) AS moved
    WHERE moved.source IS NULL
       OR moved.source <> moved.target
      AND (SELECT count(*) FROM interlock.path
           WHERE path.kind = moved.kind AND path.source = moved.source AND path.target = moved.target) = 0
    LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF wrong.source IS NULL THEN
        RAISE EXCEPTION 'a record keeps its kind and id: % % was another one', wrong.kind, wrong.id
            USING ERRCODE = 'check_violation';
    END IF;
    RAISE EXCEPTION '% % is % and cannot become %', wrong.kind, wrong.id, wrong.source, wrong.target
        USING ERRCODE = 'check_violation', HINT = 'No path of its table leads there; see the table path.';
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

CREATE TRIGGER creations AFTER INSERT ON interlock.record REFERENCING NEW TABLE AS fresh
FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse_creations();
CREATE TRIGGER changes AFTER UPDATE ON interlock.record REFERENCING OLD TABLE AS before NEW TABLE AS after
FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse_changes();
CREATE TRIGGER removals AFTER DELETE ON interlock.record REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse_removals();
CREATE TRIGGER emptying BEFORE TRUNCATE ON interlock.record
FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse_always();

CREATE TRIGGER rewriting BEFORE UPDATE OR TRUNCATE ON interlock.journal
FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse_always();
CREATE TRIGGER forgetting AFTER DELETE ON interlock.journal REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse_forgetting();
