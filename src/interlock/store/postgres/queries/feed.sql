-- What comes after the place ($1, $2) and belongs to transactions below the oldest that is still
-- running. With a snapshot $3, what it could see is left out: such a cursor comes from `latest`, when
-- some of what was running then had smaller numbers than what was there already.
-- The first row is always there: how far the journal is settled, where
-- a gap ends, and whether something has to wait. That is asked of the newest entry alone: looking for
-- any that is not settled went through the whole journal, for each row.
--
-- Of packed rows only so many are taken apart as have $4 members together, and some more: the first of them may
-- have been read already, up to a member.
WITH edge AS MATERIALIZED (
    SELECT
        meta.xact_offset,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint + meta.xact_offset AS settled,
        meta.pruned_xact,
        meta.pruned_entry,
        greatest(
            (
                SELECT single.xact FROM interlock.journal_single AS single
                ORDER BY single.xact DESC, single.entry DESC LIMIT 1
            ),
            (
                SELECT packed.xact FROM interlock.journal_packed AS packed
                ORDER BY packed.xact DESC, packed.entry DESC LIMIT 1
            )
        ) AS newest
    FROM interlock.meta
)
SELECT edge.xact_offset, edge.settled, edge.pruned_xact, edge.pruned_entry,
    coalesce(edge.newest >= edge.settled, false) AS waiting,
    found.*
FROM edge
LEFT JOIN LATERAL (
    (
        SELECT single.xact, single.entry, single.at, single.kind, single.id, single.version, single.note::text
        FROM interlock.journal_single AS single
        WHERE (single.xact, single.entry) > ($1, $2)
          AND single.xact < edge.settled
          AND ($3::text IS NULL OR NOT pg_visible_in_snapshot(
              (single.xact - edge.xact_offset)::text::xid8, $3::text::pg_snapshot
          ))
        ORDER BY single.xact, single.entry
        LIMIT $4
    )
    UNION ALL
    (
        SELECT packed.xact, packed.entry + member.place - 1, packed.at, packed.kind, member.id, packed.version,
            coalesce(packed.note::text, member.note)
        FROM (
            SELECT next.*, sum(next.members) OVER (ORDER BY next.xact, next.entry) - next.members AS passed
            FROM (
                SELECT packed.* FROM interlock.journal_packed AS packed
                WHERE (packed.xact, packed.entry) > ($1, $2 - 1024)
                  AND packed.xact < edge.settled
                  AND ($3::text IS NULL OR NOT pg_visible_in_snapshot(
                      (packed.xact - edge.xact_offset)::text::xid8, $3::text::pg_snapshot
                  ))
                ORDER BY packed.xact, packed.entry
                LIMIT $4 + 1
            ) AS next
        ) AS packed
        CROSS JOIN LATERAL unnest(
            string_to_array(packed.ids, E'\x1e', ''), string_to_array(packed.notes, E'\n')
        ) WITH ORDINALITY AS member (id, note, place)
        WHERE packed.passed < $4 + 1024
          AND member.id IS NOT NULL
          AND (packed.xact, packed.entry + member.place - 1) > ($1, $2)
        ORDER BY packed.xact, packed.entry, member.place
        LIMIT $4
    )
    ORDER BY xact, entry
    LIMIT $4
) AS found ON true
ORDER BY found.xact, found.entry
