-- Write one change of many records: a batch. It is said once, so one statement without a choice in it is left
-- for each of creating, changing and ending, and one row for the journal.
--
-- `ids` come in the order of the keys, in which all lock; `told` has them in the order of the batch, NULL where
-- that is the same. `given`, `results` and `moments` (when the expected version was written, in microseconds
-- since 1970) are in the order of `ids`. All have E'\x1e' between them; '' is NULL, which for a result means
-- that it stays as it is. `said` is what all share:
--
--     1 kind, 2 expected, 3 state, 4 body, 5 parent, 6 queue, 7 labels (E'\x1f' between them), 8 handler,
--     9 priority, 10 ready_at, 11 rank, 12 deadline_at, 13 note, 14 'end' where it has ended and waits for nothing,
--     15 when the expected version was written, unless `moments` says that, 16 the channel to notify, if any
--
-- Nothing is judged. Where something stands in the way of one of them, serialization_failure or
-- unique_violation is raised and nothing is written. For a single record NULL is returned instead: nothing has to
-- be undone then.
--
-- The settings pin the plans: look each key up in its index. A plan that was made while a table was small, or
-- by statistics that are out of date, would otherwise stay. Conditions that another index could serve are
-- written so that it is not offered: `(…) IS TRUE`, and BETWEEN where = would do.
CREATE FUNCTION interlock.write_batch(
    not_before timestamptz, not_after timestamptz,
    ids text, told text, given text, results text, moments text, said text[]
)
RETURNS timestamptz
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
SET interlock.vouched = 'on'
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := greatest(clock_timestamp(), not_before);
    keys text[] := string_to_array(ids, E'\x1e');
    the_kind text := said[1];
    the_expected bigint := said[2];
    the_state text := said[3];
    the_body json := said[4];
    the_labels text[] := string_to_array(said[7], E'\x1f');
    the_priority integer := said[9];
    the_ready_at timestamptz := timestamptz 'epoch' + said[10]::bigint * interval '1 microsecond';
    the_rank bigint := said[11];
    the_lane text := CASE WHEN said[10] IS NOT NULL
        THEN concat_ws(E'\x1f', coalesce(said[6], ''), said[7], E'\x1d' || said[8]) END;
    the_deadline_at timestamptz := timestamptz 'epoch' + said[12]::bigint * interval '1 microsecond';
    the_note json := said[13];
    the_expected_at timestamptz := timestamptz 'epoch' + said[15]::bigint * interval '1 microsecond';
    is_ready boolean := coalesce(the_ready_at <= moment, false);
    ends boolean := said[14] IS NOT NULL;
    number bigint;
    mark bytea := '';
    place bigint;
    wanted integer := cardinality(keys);
    written integer := 0;
    long boolean := false;
BEGIN
    IF wanted = 1 AND not_after < moment THEN
        RETURN NULL;
    END IF;
    IF the_note IS NOT NULL THEN
        number := pg_current_xact_id()::text::bigint
            + (SELECT meta.xact_offset FROM interlock.meta WHERE meta.one);
        mark := int8send(number);
    END IF;

    IF the_expected = 0 THEN
        IF EXISTS (
            SELECT FROM interlock.path
            WHERE path.kind = the_kind AND path.source = '' AND path.target = the_state
        ) THEN
            IF wanted = 1 THEN
                INSERT INTO interlock.spec (created_at, kind, id, given)
                VALUES (moment, the_kind, ids, given::json) ON CONFLICT DO NOTHING;
                IF NOT FOUND THEN
                    RETURN NULL;
                END IF;
            ELSE
                INSERT INTO interlock.spec (created_at, kind, id, given)
                SELECT moment, the_kind, c.id, c.given::json
                FROM unnest(keys, string_to_array(given, E'\x1e', '')) AS c (id, given);
            END IF;
            IF ends THEN
                INSERT INTO interlock.ended (
                    created_at, updated_at, version, priority, kind, id, state, queue, parent, labels, trail,
                    body, result
                )
                SELECT moment, moment, 1, the_priority, the_kind, c.id, the_state, said[6], said[5], the_labels,
                    mark, the_body, c.result::json
                FROM unnest(keys, string_to_array(results, E'\x1e', '')) AS c (id, result);
            ELSE
                INSERT INTO interlock.live (
                    created_at, updated_at, version, rank, ready_at, deadline_at, priority, ready, kind, id,
                    state, lane, queue, parent, labels, trail, body, result
                )
                SELECT moment, moment, 1, the_rank, the_ready_at, the_deadline_at, the_priority, is_ready,
                    the_kind, c.id, the_state, the_lane, said[6], said[5], the_labels, mark, the_body,
                    c.result::json
                FROM unnest(keys, string_to_array(results, E'\x1e', '')) AS c (id, result);
            END IF;
            GET DIAGNOSTICS written = ROW_COUNT;
        END IF;
    ELSIF ends THEN
        WITH gone AS (
            DELETE FROM interlock.live AS l
            USING unnest(
                keys, string_to_array(results, E'\x1e', ''), string_to_array(moments, E'\x1e', '')::bigint[]
            ) AS c (id, result, expected_us)
            WHERE l.id BETWEEN c.id AND c.id
              AND (l.kind = the_kind) IS TRUE
              AND l.version = the_expected
              AND l.updated_at = coalesce(
                  timestamptz 'epoch' + c.expected_us * interval '1 microsecond', the_expected_at, l.updated_at
              )
              AND (l.state = the_state OR l.state = ANY (ARRAY(
                  SELECT path.source FROM interlock.path WHERE path.kind = the_kind AND path.target = the_state
              )))
            RETURNING l.id, l.created_at, l.trail, coalesce(c.result::json, l.result) AS result
        ), moved AS (
            INSERT INTO interlock.ended (
                created_at, updated_at, version, priority, kind, id, state, queue, parent, labels, trail,
                body, result
            )
            SELECT gone.created_at, moment, the_expected + 1, the_priority, the_kind, gone.id, the_state,
                said[6], said[5], the_labels,
                CASE WHEN length(gone.trail) < 256 THEN gone.trail || mark ELSE gone.trail END,
                the_body, gone.result
            FROM gone
            RETURNING ended.trail
        )
        SELECT count(*), bool_or(substr(moved.trail, length(moved.trail) - 7) <> mark) INTO written, long
        FROM moved;
    ELSE
        WITH changed AS (
            UPDATE interlock.live AS l SET
                state = the_state,
                version = the_expected + 1,
                body = the_body,
                result = coalesce(c.result::json, l.result),
                parent = said[5],
                queue = said[6],
                labels = the_labels,
                priority = the_priority,
                ready_at = the_ready_at,
                rank = the_rank,
                lane = the_lane,
                ready = is_ready,
                deadline_at = the_deadline_at,
                updated_at = moment,
                trail = CASE WHEN length(l.trail) < 256 THEN l.trail || mark ELSE l.trail END
            FROM unnest(
                keys, string_to_array(results, E'\x1e', ''), string_to_array(moments, E'\x1e', '')::bigint[]
            ) AS c (id, result, expected_us)
            WHERE l.id BETWEEN c.id AND c.id
              AND (l.kind = the_kind) IS TRUE
              AND l.version = the_expected
              AND l.updated_at = coalesce(
                  timestamptz 'epoch' + c.expected_us * interval '1 microsecond', the_expected_at, l.updated_at
              )
              AND (l.state = the_state OR l.state = ANY (ARRAY(
                  SELECT path.source FROM interlock.path WHERE path.kind = the_kind AND path.target = the_state
              )))
            RETURNING l.trail
        )
        SELECT count(*), bool_or(substr(changed.trail, length(changed.trail) - 7) <> mark) INTO written, long
        FROM changed;
    END IF;

    IF written <> wanted THEN
        IF wanted = 1 THEN
            RETURN NULL;
        END IF;
        RAISE serialization_failure;
    END IF;
    IF the_note IS NOT NULL THEN
        place := nextval('interlock.journal_entry_seq');
        IF long THEN
            INSERT INTO interlock.journal_single (xact, entry, at, kind, id, version, note)
            OVERRIDING SYSTEM VALUE
            SELECT number, place + c.item - 1, moment, the_kind, c.id, the_expected + 1, the_note
            FROM unnest(string_to_array(coalesce(told, ids), E'\x1e')) WITH ORDINALITY AS c (id, item);
        ELSE
            INSERT INTO interlock.journal_packed (xact, entry, at, version, members, kind, note, ids)
            VALUES (
                number, place, moment, the_expected + 1, wanted, the_kind, the_note,
                coalesce(told, ids)
            );
        END IF;
    END IF;
    IF not_after < greatest(clock_timestamp(), not_before) THEN
        RAISE serialization_failure;
    END IF;
    IF said[16] IS NOT NULL THEN
        PERFORM pg_notify(said[16], '');
    END IF;
    RETURN moment;
END $$;

-- The same of several records in a subtransaction: NULL where it was undone, and no ERROR in the server's log.
-- (The setting keeps the call itself from being planned again each time.)
CREATE FUNCTION interlock.try_batch(
    not_before timestamptz, not_after timestamptz,
    ids text, told text, given text, results text, moments text, said text[]
)
RETURNS timestamptz
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN interlock.write_batch(not_before, not_after, ids, told, given, results, moments, said);
EXCEPTION WHEN serialization_failure OR unique_violation OR check_violation THEN
    RETURN NULL;
END $$;
