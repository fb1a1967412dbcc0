-- What comes after the place ($1, $2) and belongs to transactions below the oldest that is still
-- running. With a snapshot $3, what it could see is left out: such a cursor comes from `latest`, when
-- some of what was running then had smaller numbers than what was there already.
-- The first row is always there: how far the journal is settled, where
-- a gap ends, and whether something has to wait. That is asked of the newest entry alone: looking for
-- any that is not settled went through the whole journal, for each row.
WITH edge AS MATERIALIZED (
    SELECT
        meta.xact_offset,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint + meta.xact_offset AS settled,
        meta.pruned_xact,
        meta.pruned_entry,
        (
            SELECT journal.xact FROM interlock.journal
            ORDER BY journal.xact DESC, journal.entry DESC LIMIT 1
        ) AS newest
    FROM interlock.meta
)
SELECT edge.xact_offset, edge.settled, edge.pruned_xact, edge.pruned_entry,
    coalesce(edge.newest >= edge.settled, false) AS waiting,
    found.*
FROM edge
LEFT JOIN LATERAL (
    SELECT journal.xact, journal.entry, journal.at, journal.kind, journal.id, journal.version, journal.note
    FROM interlock.journal
    WHERE (journal.xact, journal.entry) > ($1, $2)
      AND journal.xact < edge.settled
      AND ($3::text IS NULL OR NOT pg_visible_in_snapshot(
          (journal.xact - edge.xact_offset)::text::xid8, $3::text::pg_snapshot
      ))
    ORDER BY journal.xact, journal.entry
    LIMIT $4
) AS found ON true
ORDER BY found.xact, found.entry
