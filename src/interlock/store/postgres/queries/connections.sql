SELECT
    count(*) FILTER (WHERE application_name = $1 AND datname = current_database()) AS ours,
    count(*) AS all,
    current_setting('max_connections')::integer AS most
FROM pg_stat_activity WHERE backend_type = 'client backend'
