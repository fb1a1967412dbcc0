-- Counts are capped by $1: a status must not read the whole database.
SELECT 'record', state.kind, state.name, number.of, NULL::timestamptz
FROM interlock.state
CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT FROM interlock.record
        WHERE interlock.stretch(record.kind, record.state) = interlock.stretch(state.kind, state.name)
          AND record.kind = state.kind AND record.state = state.name LIMIT $1
    ) AS counted
) AS number (of)
WHERE number.of > 0
UNION ALL
SELECT 'journal', NULL, NULL, (SELECT count(*) FROM (SELECT FROM interlock.journal LIMIT $1) AS counted),
    (SELECT at FROM interlock.journal ORDER BY xact, entry LIMIT 1)
UNION ALL
SELECT 'request', NULL, NULL, (SELECT count(*) FROM (SELECT FROM interlock.request LIMIT $1) AS counted), NULL
UNION ALL
SELECT 'schema', NULL, NULL, schema_version, NULL FROM interlock.meta
