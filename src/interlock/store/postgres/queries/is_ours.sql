-- Whether a table called meta is ours is asked of the catalogue: it may have none of our columns.
SELECT
    count(*) FILTER (WHERE a.attname IN ('application', 'schema_version', 'xact_offset')) = 3 AS ours,
    EXISTS (
        SELECT FROM pg_class AS kept WHERE kept.relnamespace = n.oid AND kept.relname = 'applied_migration'
    ) AS fingerprinted
FROM pg_namespace AS n
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'meta'
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
WHERE n.nspname = $1
GROUP BY c.oid, n.oid
