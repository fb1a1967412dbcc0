-- Creates two records: one as `write_one` of 0017_single.sql does, and a plain one beside it, such as the unique key of
-- a job. The plain one comes first, because it is the one that there may be already: then nothing was written, and
-- no ERROR is in the server's log. The id of the other is fresh, so no one waits for it.
CREATE FUNCTION interlock.create_pair(
    not_before timestamptz, not_after timestamptz, of_kind text, of_id text, wanted bigint, wanted_at timestamptz,
    to_state text, is_end boolean, new_body json, new_given json, new_result json, new_parent text,
    new_queue text, new_labels text[], new_lane text, new_priority integer, new_ready_at timestamptz,
    new_rank bigint, new_deadline_at timestamptz, new_note json, word text,
    other_kind text, other_id text, other_state text, other_body json
)
RETURNS timestamptz
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET interlock.vouched = 'on'
AS $$
DECLARE
    moment timestamptz := greatest(clock_timestamp(), not_before);
    number bigint;
    mark bytea := '';
BEGIN
    IF not_after < moment THEN
        RETURN NULL;
    END IF;
    INSERT INTO interlock.spec (created_at, kind, id, given)
    SELECT moment, other_kind, other_id, NULL FROM interlock.path
    WHERE path.kind = other_kind AND path.source = '' AND path.target = other_state
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO interlock.spec (created_at, kind, id, given)
    SELECT moment, of_kind, of_id, new_given FROM interlock.path
    WHERE path.kind = of_kind AND path.source = '' AND path.target = to_state
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE serialization_failure;
    END IF;
    IF new_note IS NOT NULL THEN
        SELECT pg_current_xact_id()::text::bigint + meta.xact_offset INTO number
        FROM interlock.meta WHERE meta.one;
        mark := int8send(number);
        INSERT INTO interlock.journal_packed (xact, entry, at, version, members, kind, note, ids)
        VALUES (number, nextval('interlock.journal_entry_seq'), moment, 1, 1, of_kind, new_note, of_id);
    END IF;
    INSERT INTO interlock.live (
        created_at, updated_at, version, rank, ready_at, deadline_at, priority, ready, kind, id, state,
        lane, queue, parent, labels, trail, body, result
    )
    VALUES (
        moment, moment, 1, new_rank, new_ready_at, new_deadline_at, new_priority,
        coalesce(new_ready_at <= moment, false), of_kind, of_id, to_state, new_lane, new_queue,
        new_parent, new_labels, mark, new_body, new_result
    ), (
        moment, moment, 1, NULL, NULL, NULL, 0, false, other_kind, other_id, other_state, NULL, NULL, NULL, NULL,
        '', other_body, NULL
    );
    IF not_after < greatest(clock_timestamp(), not_before) THEN
        RAISE serialization_failure;
    END IF;
    IF word IS NOT NULL THEN
        PERFORM pg_notify(word, '');
    END IF;
    RETURN moment;
END $$;
