SELECT p.proname AS name, p.prosrc AS body FROM pg_proc AS p
JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = $1 AND p.proname = ANY ($2)
