-- What this role lacks, by object: one row for the schema, and one for each object with something missing.
-- $1 is the schema, $2 the tables and views of Interlock, $3 its sequences, $4 its functions.
WITH here AS (
    SELECT oid FROM pg_namespace WHERE nspname = $1
), relation AS (
    SELECT c.oid, c.relname, c.relkind, c.relowner
    FROM pg_class AS c JOIN here ON c.relnamespace = here.oid
    WHERE c.relkind IN ('r', 'v') AND c.relname = ANY ($2::text[]) OR c.relkind = 'S' AND c.relname = ANY ($3::text[])
), lacking AS (
    SELECT
        CASE relkind WHEN 'S' THEN 'sequence' ELSE 'table' END AS what,
        relname::text AS name,
        ARRAY(
            SELECT privilege FROM unnest(
                CASE relkind
                    WHEN 'S' THEN ARRAY['USAGE']
                    WHEN 'v' THEN ARRAY['SELECT']
                    ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']
                END
            ) AS privilege
            WHERE NOT CASE relkind
                WHEN 'S' THEN has_sequence_privilege(relation.oid, privilege)
                ELSE has_table_privilege(relation.oid, privilege)
            END
        ) AS privileges
    FROM relation
    UNION ALL
    SELECT 'function', p.proname::text, ARRAY['EXECUTE']
    FROM pg_proc AS p JOIN here ON p.pronamespace = here.oid
    WHERE p.proname = ANY ($4::text[]) AND NOT has_function_privilege(p.oid, 'EXECUTE')
)
SELECT
    'schema' AS what,
    quote_ident(current_user) AS name,
    array_remove(ARRAY[
        CASE WHEN NOT has_schema_privilege(here.oid, 'USAGE') THEN 'USAGE' END,
        CASE WHEN NOT has_schema_privilege(here.oid, 'CREATE') THEN 'CREATE' END
    ], NULL) AS privileges,
    here.oid IS NOT NULL AS is_made,
    has_database_privilege(current_database(), 'CREATE') AS may_make,
    quote_ident(current_database()) AS database,
    coalesce((SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM relation), true) AS owns,
    coalesce((SELECT min(pg_get_userbyid(relowner)) FROM relation), '') AS owner
FROM (SELECT) AS one LEFT JOIN here ON true
UNION ALL
SELECT what, name, privileges, true, true, '', true, '' FROM lacking WHERE cardinality(privileges) > 0
ORDER BY 1, 2
