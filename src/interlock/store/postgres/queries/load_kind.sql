-- One kind with its states and paths. A path that is no longer in its table goes; a state stays, because
-- there may be records in it, which are still to be listed, counted and pruned.
WITH kind AS (
    INSERT INTO interlock.kind (name, initial, digest, stretches)
    VALUES ($1, $2, $3, ARRAY(
        SELECT interlock.stretch($1, known.name) FROM (
            SELECT unnest($4::text[]) UNION SELECT state.name FROM interlock.state WHERE state.kind = $1
        ) AS known (name)
    ))
    ON CONFLICT (name) DO UPDATE SET
        initial = excluded.initial, digest = excluded.digest, stretches = excluded.stretches
), old_paths AS (
    DELETE FROM interlock.path WHERE path.kind = $1
      AND (path.source, path.target) NOT IN (SELECT * FROM unnest($6::text[], $7::text[]))
), states AS (
    INSERT INTO interlock.state (kind, name, terminal)
    SELECT $1, * FROM unnest($4::text[], $5::boolean[])
    ON CONFLICT (kind, name) DO UPDATE SET terminal = excluded.terminal
)
INSERT INTO interlock.path (kind, source, target)
SELECT $1, * FROM unnest($6::text[], $7::text[])
ON CONFLICT DO NOTHING
