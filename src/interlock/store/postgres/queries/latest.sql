-- Everything below the first number is there or never will be; of the rest, what the snapshot sees is.
SELECT
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint + meta.xact_offset,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint + meta.xact_offset,
    pg_current_snapshot()::text
FROM interlock.meta
