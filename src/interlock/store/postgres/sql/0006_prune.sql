-- Removes up to `most` ended records that were last changed longer ago than `age`, with their
-- journal, and as many expired requests. What somebody holds is left for the next time.
CREATE FUNCTION interlock.prune(
    not_before timestamptz, of_kind text, states text[], age interval, most integer,
    OUT records bigint, OUT entries bigint, OUT requests bigint, OUT more boolean
)
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := greatest(clock_timestamp(), not_before);
    found text[];
    place record;
BEGIN
    -- What was changed before that was also created before that, which the index knows.
    found := ARRAY(
        SELECT r.id FROM unnest(states) AS wanted (state)
        CROSS JOIN LATERAL (
            SELECT r.id FROM interlock.record AS r
            WHERE interlock.stretch(r.kind, r.state) = interlock.stretch(of_kind, wanted.state)
              AND r.kind = of_kind AND r.state = wanted.state
              AND r.created_at <= moment - age AND r.updated_at <= moment - age
            ORDER BY r.created_at, r.id LIMIT most + 1 FOR UPDATE SKIP LOCKED
        ) AS r
        LIMIT most + 1
    );
    more := cardinality(found) > most;
    found := found[:most];

    DELETE FROM interlock.record WHERE kind = of_kind AND id = ANY (found);
    GET DIAGNOSTICS records = ROW_COUNT;

    WITH gone AS (
        DELETE FROM interlock.journal WHERE kind = of_kind AND id = ANY (found) RETURNING xact, entry
    )
    SELECT count(*) AS number, (array_agg(xact ORDER BY xact DESC, entry DESC))[1] AS xact,
        (array_agg(entry ORDER BY xact DESC, entry DESC))[1] AS entry
    INTO place FROM gone;
    entries := place.number;
    IF entries > 0 THEN
        UPDATE interlock.meta SET pruned_xact = place.xact, pruned_entry = place.entry
        WHERE one AND (pruned_xact, pruned_entry) < (place.xact, place.entry);
    END IF;

    DELETE FROM interlock.request WHERE id = ANY (ARRAY(
        SELECT r.id FROM interlock.request AS r WHERE r.expires_at <= moment
        ORDER BY r.expires_at LIMIT most FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS requests = ROW_COUNT;
    more := more OR requests = most;
END $$;
