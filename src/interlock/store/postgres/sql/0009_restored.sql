-- A dump that is restored is noticed, also on the same server: the database or its tables are others then.
-- Object ids are given out once in a cluster. (Contents that are copied into the same tables are not noticed;
-- nor is a copy of the whole cluster that is put back as it was. See current_epoch.)
CREATE OR REPLACE FUNCTION interlock.identity(OUT server text, OUT timeline bigint) LANGUAGE plpgsql AS $$
DECLARE
    place text := format('%s/%s', (SELECT oid FROM pg_database WHERE datname = current_database()),
        'interlock.meta'::regclass::oid);
BEGIN
    timeline := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
    server := (SELECT system_identifier FROM pg_control_system())::text || '/' || timeline || '/' || place;
EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
    timeline := 0;
    server := 'started ' || pg_postmaster_start_time() || '/' || place;
END $$;

-- As before, and no epoch is less than the number of half hours since 1970: so it has grown after a restore
-- that nothing shows, if that took longer.
CREATE OR REPLACE FUNCTION interlock.current_epoch() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    here record;
    stored record;
    newest bigint;
    least bigint := floor(date_part('epoch', clock_timestamp()) / 1800)::bigint;
BEGIN
    SELECT * INTO here FROM interlock.identity();
    SELECT meta.* INTO stored FROM interlock.meta WHERE meta.one;
    IF stored.server = here.server AND stored.epoch >= least THEN
        RETURN stored.epoch;
    END IF;
    SELECT meta.* INTO stored FROM interlock.meta WHERE meta.one FOR UPDATE;
    IF stored.server = here.server THEN
        UPDATE interlock.meta SET epoch = greatest(stored.epoch, least) WHERE meta.one
        RETURNING meta.epoch INTO stored.epoch;
        RETURN stored.epoch;
    END IF;
    newest := greatest(stored.pruned_xact, (SELECT max(journal.xact) FROM interlock.journal));
    UPDATE interlock.meta SET
        server = here.server,
        epoch = greatest(stored.epoch + 1, here.timeline, least),
        xact_offset = CASE
            WHEN newest - stored.xact_offset < pg_snapshot_xmax(pg_current_snapshot())::text::bigint
            THEN stored.xact_offset
            ELSE newest
        END
    WHERE meta.one
    RETURNING meta.epoch INTO stored.epoch;
    RETURN stored.epoch;
END $$;

-- Begins an epoch that is larger than `above` and than every earlier one.
CREATE FUNCTION interlock.raise_epoch(above bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    present bigint := interlock.current_epoch();
BEGIN
    UPDATE interlock.meta SET epoch = greatest(meta.epoch, present, above) + 1 WHERE meta.one
    RETURNING meta.epoch INTO present;
    RETURN present;
END $$;
