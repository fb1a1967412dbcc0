-- Which server this is, as far as it matters for what may have been lost.
--
-- The first 8 digits of the name of the WAL file are the timeline, which every promotion of a
-- stand-by makes larger, at once (pg_control_checkpoint() says so only after the next checkpoint).
-- The system identifier is drawn when a cluster is made, so a restored dump has another one. Where a
-- provider permits neither, the time of the server's start stands in: that grows too often, never
-- too seldom.
CREATE FUNCTION interlock.identity(OUT server text, OUT timeline bigint) LANGUAGE plpgsql AS $$
BEGIN
    timeline := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
    server := (SELECT system_identifier FROM pg_control_system())::text || '/' || timeline;
EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
    timeline := 0;
    server := 'started ' || pg_postmaster_start_time();
END $$;

-- The present epoch. When the server is not the one of the last time, the epoch has grown: by one,
-- and to no less than the timeline. (The row itself may be among what was lost. Then counting on from
-- it would repeat an epoch; the timeline does not.)
--
-- If the journal holds transactions that this server has yet to begin, they are those of another one,
-- and this is a restored dump: its own are counted on from there, so that the order goes on.
CREATE FUNCTION interlock.current_epoch() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    here record;
    stored record;
    newest bigint;
BEGIN
    SELECT * INTO here FROM interlock.identity();
    SELECT meta.* INTO stored FROM interlock.meta WHERE meta.one;
    IF stored.server = here.server THEN
        RETURN stored.epoch;
    END IF;
    SELECT meta.* INTO stored FROM interlock.meta WHERE meta.one FOR UPDATE;
    IF stored.server = here.server THEN
        RETURN stored.epoch;
    END IF;
    newest := greatest(stored.pruned_xact, (SELECT max(journal.xact) FROM interlock.journal));
    UPDATE interlock.meta SET
        server = here.server,
        epoch = greatest(stored.epoch + 1, here.timeline),
        xact_offset = CASE
            WHEN newest - stored.xact_offset < pg_snapshot_xmax(pg_current_snapshot())::text::bigint
            THEN stored.xact_offset
            ELSE newest
        END
    WHERE meta.one
    RETURNING meta.epoch INTO stored.epoch;
    RETURN stored.epoch;
END $$;
