-- Keep ordinary conflicts out of the server's log. The optimistic write of a wave runs in a subtransaction:
-- if another writer was faster it is undone without an ERROR, these functions return nothing, and the client
-- calls `judge_wave`. Only for clients that hold no locks: see there for what it would cost them.

CREATE FUNCTION interlock.try_wave(
    not_before timestamptz,
    ids text, bodies text, notes text, shared text[], varied text[],
    f_place integer[], f_kind text[], f_id text[], f_note json[],
    earliest timestamptz, l_place integer[], l_not_after timestamptz[],
    q_place integer[], q_id text[], q_endpoint text[], q_fingerprint text[], q_status integer[],
    q_body bytea[], q_ttl_s double precision[]
)
RETURNS TABLE (
    verdict text, item integer, found bigint, source text, at timestamptz,
    endpoint text, fingerprint text, status integer, body bytea, created_at timestamptz, expires_at timestamptz
)
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN QUERY SELECT * FROM interlock.write_wave(
        false, not_before, ids, bodies, notes, shared, varied, f_place, f_kind, f_id, f_note,
        earliest, l_place, l_not_after, q_place, q_id, q_endpoint, q_fingerprint, q_status,
        q_body, q_ttl_s
    );
EXCEPTION WHEN serialization_failure OR unique_violation OR check_violation THEN
    RETURN;
END $$;

-- NULL where it was undone.
CREATE FUNCTION interlock.try_alike(
    not_before timestamptz, earliest timestamptz, ids text, bodies text, notes text, moments text, said text[]
)
RETURNS timestamptz
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN interlock.write_alike(not_before, earliest, ids, bodies, notes, moments, said);
EXCEPTION WHEN serialization_failure OR check_violation THEN
    RETURN NULL;
END $$;
