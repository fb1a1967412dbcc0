-- What a claimer must be able to execute; '' where that does not matter. Within a lane and a priority each
-- handler has a stretch of the index, so that a claim passes by what its claimer cannot execute.
--
-- A program of an earlier version leaves the handler as it is, or '' in what it creates. It finds all that is
-- ready by the same index, though it then sorts the stretches of all handlers together.
ALTER TABLE records ADD COLUMN handler TEXT NOT NULL DEFAULT '';
DROP INDEX records_by_lane;
CREATE INDEX records_by_lane ON records (lane, priority, handler, ready_us, id) WHERE ready_us IS NOT NULL;
