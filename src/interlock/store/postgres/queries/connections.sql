SELECT
    count(*) FILTER (WHERE application_name = $1 AND datname = current_database()) AS ours,
    count(*) AS all,
    current_setting('max_connections')::integer AS most,
    pg_database_size(current_database()) AS bytes,
    current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean AS autovacuum,
    -- Nothing that was removed since the oldest of them began can be reclaimed. What other users do may be
    -- hidden from us.
    max(EXTRACT(EPOCH FROM clock_timestamp() - xact_start)) FILTER (
        WHERE backend_xmin IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()
    )::float8 AS oldest_transaction_s
FROM pg_stat_activity WHERE backend_type = 'client backend'
