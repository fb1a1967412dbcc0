SELECT
    count(*) FILTER (WHERE application_name = $1 AND datname = current_database()) AS ours,
    count(*) AS all,
    current_setting('max_connections')::integer AS most,
    pg_database_size(current_database()) AS bytes
FROM pg_stat_activity WHERE backend_type = 'client backend'
