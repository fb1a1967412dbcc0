-- Writes commits as `try_commits` does, and with them plain records: created with nothing but a body, such as the unique
-- keys of the jobs of the first commit. All or nothing; NULL where it was undone, also if one of the plain records is
-- there already.
CREATE FUNCTION interlock.try_with_plain(
    not_before timestamptz,
    ids text, bodies text, notes text, shared text[], varied text[],
    f_place integer[], f_kind text[], f_id text[], f_note json[],
    earliest timestamptz, l_place integer[], l_not_after timestamptz[],
    q_place integer[], q_id text[], q_endpoint text[], q_fingerprint text[], q_status integer[],
    q_body bytea[], q_ttl_s double precision[],
    plain_kind text, plain_state text, plain_ids text, plain_bodies text
)
RETURNS timestamptz
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET interlock.vouched = 'on'
AS $$
DECLARE
    moment timestamptz;
    c_id text[] := string_to_array(plain_ids, E'\x1e');
BEGIN
    SELECT written.at INTO moment FROM interlock.write_wave(
        false, not_before, ids, bodies, notes, shared, varied, f_place, f_kind, f_id, f_note,
        earliest, l_place, l_not_after, q_place, q_id, q_endpoint, q_fingerprint, q_status,
        q_body, q_ttl_s
    ) AS written;
    INSERT INTO interlock.spec (created_at, kind, id, given)
    SELECT moment, plain_kind, c.id, NULL FROM interlock.path CROSS JOIN unnest(c_id) AS c (id)
    WHERE path.kind = plain_kind AND path.source = '' AND path.target = plain_state;
    IF NOT FOUND THEN
        RAISE serialization_failure;
    END IF;
    INSERT INTO interlock.live (
        created_at, updated_at, version, priority, ready, kind, id, state, trail, body
    )
    SELECT moment, moment, 1, 0, false, plain_kind, c.id, plain_state, '', c.body::json
    FROM unnest(c_id, string_to_array(plain_bodies, E'\x1e')) AS c (id, body);
    IF earliest < greatest(clock_timestamp(), not_before) THEN
        RAISE serialization_failure;
    END IF;
    RETURN moment;
EXCEPTION WHEN serialization_failure OR unique_violation OR check_violation THEN
    RETURN NULL;
END $$;
