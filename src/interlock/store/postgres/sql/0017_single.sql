-- Write one record, which is what most callers do, without the price of a batch.
--
-- The conditions of the triggers called `is_vouched`, a function in SQL. Its body was parsed again for each
-- statement and table, which cost a commit of one record as much as its rows. So the setting is read in place.
DROP TRIGGER changes ON interlock.live;
DROP TRIGGER by_hand ON interlock.live;
DROP TRIGGER by_hand ON interlock.ended;
DROP TRIGGER by_hand ON interlock.spec;
CREATE TRIGGER changes AFTER UPDATE ON interlock.live FOR EACH ROW
WHEN (current_setting('interlock.vouched', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION interlock.refuse_change();
CREATE TRIGGER by_hand BEFORE INSERT OR DELETE ON interlock.live FOR EACH STATEMENT
WHEN (current_setting('interlock.vouched', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION interlock.refuse_by_hand();
CREATE TRIGGER by_hand BEFORE INSERT OR UPDATE OR DELETE ON interlock.ended FOR EACH STATEMENT
WHEN (current_setting('interlock.vouched', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION interlock.refuse_by_hand();
CREATE TRIGGER by_hand BEFORE INSERT OR UPDATE OR DELETE ON interlock.spec FOR EACH STATEMENT
WHEN (current_setting('interlock.vouched', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION interlock.refuse_by_hand();

-- `write_batch` of 0014_batch.sql for one record: the same comparisons and the same rows, from scalars. Returns
-- when it was written, or NULL where something stood in its way and nothing was written; it is judged then by
-- `judge_commits`. `wanted_at` is when the expected version was written, `word` the channel to notify.
--
-- Each statement finds its row by a whole primary key, and no condition fits another index; `enable_seqscan`
-- keeps a plan that was made while the table was empty from staying.
CREATE FUNCTION interlock.write_one(
    not_before timestamptz, not_after timestamptz, of_kind text, of_id text, wanted bigint, wanted_at timestamptz,
    to_state text, is_end boolean, new_body json, new_given json, new_result json, new_parent text,
    new_queue text, new_labels text[], new_lane text, new_priority integer, new_ready_at timestamptz,
    new_rank bigint, new_deadline_at timestamptz, new_note json, word text
)
RETURNS timestamptz
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET interlock.vouched = 'on'
AS $$
DECLARE
    moment timestamptz := greatest(clock_timestamp(), not_before);
    number bigint;
    mark bytea := '';
    its_created_at timestamptz;
    its_trail bytea := '';
    its_result json;
BEGIN
    IF not_after < moment THEN
        RETURN NULL;
    END IF;
    IF new_note IS NOT NULL THEN
        SELECT pg_current_xact_id()::text::bigint + meta.xact_offset INTO number
        FROM interlock.meta WHERE meta.one;
        mark := int8send(number);
    END IF;

    IF wanted = 0 THEN
        INSERT INTO interlock.spec (created_at, kind, id, given)
        SELECT moment, of_kind, of_id, new_given FROM interlock.path
        WHERE path.kind = of_kind AND path.source = '' AND path.target = to_state
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        its_created_at := moment;
        its_trail := mark;
        its_result := new_result;
        IF NOT is_end THEN
            INSERT INTO interlock.live (
                created_at, updated_at, version, rank, ready_at, deadline_at, priority, ready, kind, id, state,
                lane, queue, parent, labels, trail, body, result
            )
            VALUES (
                moment, moment, 1, new_rank, new_ready_at, new_deadline_at, new_priority,
                coalesce(new_ready_at <= moment, false), of_kind, of_id, to_state, new_lane, new_queue,
                new_parent, new_labels, mark, new_body, new_result
            );
        END IF;
    ELSIF is_end THEN
        DELETE FROM interlock.live AS l
        WHERE l.id = of_id AND l.kind = of_kind AND l.version = wanted
          AND l.updated_at = coalesce(wanted_at, l.updated_at)
          AND (l.state = to_state OR EXISTS (
              SELECT FROM interlock.path
              WHERE path.kind = of_kind AND path.source = l.state AND path.target = to_state
          ))
        RETURNING l.created_at, CASE WHEN length(l.trail) < 256 THEN l.trail || mark ELSE l.trail END,
            coalesce(new_result, l.result)
        INTO its_created_at, its_trail, its_result;
    ELSE
        UPDATE interlock.live AS l SET
            state = to_state,
            version = wanted + 1,
            body = new_body,
            result = coalesce(new_result, l.result),
            parent = new_parent,
            queue = new_queue,
            labels = new_labels,
            priority = new_priority,
            ready_at = new_ready_at,
            rank = new_rank,
            lane = new_lane,
            ready = coalesce(new_ready_at <= moment, false),
            deadline_at = new_deadline_at,
            updated_at = moment,
            trail = CASE WHEN length(l.trail) < 256 THEN l.trail || mark ELSE l.trail END
        WHERE l.id = of_id AND l.kind = of_kind AND l.version = wanted
          AND l.updated_at = coalesce(wanted_at, l.updated_at)
          AND (l.state = to_state OR EXISTS (
              SELECT FROM interlock.path
              WHERE path.kind = of_kind AND path.source = l.state AND path.target = to_state
          ))
        RETURNING l.created_at, l.trail INTO its_created_at, its_trail;
    END IF;
    IF its_created_at IS NULL THEN
        RETURN NULL;
    END IF;

    IF is_end THEN
        INSERT INTO interlock.ended (
            created_at, updated_at, version, priority, kind, id, state, queue, parent, labels, trail, body, result
        )
        VALUES (
            its_created_at, moment, wanted + 1, new_priority, of_kind, of_id, to_state, new_queue, new_parent,
            new_labels, its_trail, new_body, its_result
        );
    END IF;
    IF new_note IS NOT NULL THEN
        IF substr(its_trail, length(its_trail) - 7) = mark THEN
            INSERT INTO interlock.journal_packed (xact, entry, at, version, members, kind, note, ids)
            VALUES (
                number, nextval('interlock.journal_entry_seq'), moment, wanted + 1, 1, of_kind, new_note, of_id
            );
        ELSE
            INSERT INTO interlock.journal_single (xact, at, kind, id, version, note)
            VALUES (number, moment, of_kind, of_id, wanted + 1, new_note);
        END IF;
    END IF;
    IF not_after < greatest(clock_timestamp(), not_before) THEN
        RAISE serialization_failure;
    END IF;
    IF word IS NOT NULL THEN
        PERFORM pg_notify(word, '');
    END IF;
    RETURN moment;
END $$;

-- Whether a record is in one of these states: the guard of a claim. VOLATILE, as it is unless it says otherwise, so
-- that it sees what was committed before it is called: no less than the look for what is ready has seen.
CREATE FUNCTION interlock.stands(of_kind text, of_id text, states text[]) RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    its_state text;
BEGIN
    SELECT l.state INTO its_state FROM interlock.live AS l WHERE l.id = of_id AND l.kind = of_kind;
    IF NOT FOUND THEN
        SELECT r.state INTO its_state FROM interlock.load_records(ARRAY[of_kind], ARRAY[of_id]) AS r;
    END IF;
    RETURN coalesce(its_state = ANY (states), false);
END $$;
