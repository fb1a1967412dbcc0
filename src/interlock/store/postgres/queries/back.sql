-- The place in the journal after which the newest $1 entries are, and at most twice as many. It is the later one of
-- the places that have $1 single entries after them, and $1 members of packed rows.
SELECT place.xact, place.entry
FROM (
    (
        SELECT single.xact, single.entry FROM interlock.journal_single AS single
        ORDER BY single.xact DESC, single.entry DESC
        OFFSET $1 LIMIT 1
    )
    UNION ALL
    (
        SELECT packed.xact, packed.entry + packed.total - $1 - 1
        FROM (
            SELECT newest.xact, newest.entry,
                (sum(newest.members) OVER (ORDER BY newest.xact DESC, newest.entry DESC))::bigint AS total
            FROM (
                SELECT packed.xact, packed.entry, packed.members FROM interlock.journal_packed AS packed
                ORDER BY packed.xact DESC, packed.entry DESC
                LIMIT $1
            ) AS newest
        ) AS packed
        WHERE packed.total >= $1
        ORDER BY packed.total
        LIMIT 1
    )
) AS place
ORDER BY place.xact DESC, place.entry DESC
LIMIT 1
