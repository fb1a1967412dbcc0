-- Counts are capped by $1: a status must not read the whole database.
SELECT 'record', state.kind, state.name, number.of, NULL::timestamptz
FROM interlock.state
CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT 1 FROM interlock.kept_live AS record
        WHERE record.deadline_at IS NULL
          AND interlock.stretch(record.kind, record.state) = interlock.stretch(state.kind, state.name)
          AND record.kind = state.kind AND record.state = state.name
        UNION ALL
        SELECT 1 FROM interlock.kept_live AS record
        WHERE record.deadline_at IS NOT NULL
          AND interlock.stretch(record.kind, record.state) = interlock.stretch(state.kind, state.name)
          AND record.kind = state.kind AND record.state = state.name
        UNION ALL
        SELECT 1 FROM interlock.kept_ended AS record
        WHERE interlock.stretch(record.kind, record.state) = interlock.stretch(state.kind, state.name)
          AND record.kind = state.kind AND record.state = state.name
        LIMIT $1
    ) AS counted
) AS number (of)
WHERE number.of > 0
UNION ALL
SELECT 'journal', NULL, NULL, least($1, (
        SELECT count(*) FROM (SELECT FROM interlock.journal_single LIMIT $1) AS counted
    ) + (
        SELECT coalesce(sum(counted.members), 0)
        FROM (SELECT packed.members FROM interlock.journal_packed AS packed LIMIT $1) AS counted
    ))::bigint,
    (
        SELECT oldest.at FROM (
            (SELECT at, xact, entry FROM interlock.journal_single ORDER BY xact, entry LIMIT 1)
            UNION ALL
            (SELECT at, xact, entry FROM interlock.journal_packed ORDER BY xact, entry LIMIT 1)
        ) AS oldest
        ORDER BY oldest.xact, oldest.entry LIMIT 1
    )
UNION ALL
SELECT 'request', NULL, NULL, (SELECT count(*) FROM (SELECT FROM interlock.request LIMIT $1) AS counted), NULL
UNION ALL
SELECT 'schema', NULL, NULL, schema_version, NULL FROM interlock.meta
