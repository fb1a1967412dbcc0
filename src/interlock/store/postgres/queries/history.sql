SELECT xact, entry, at, kind, id, version, note
FROM interlock.journal
WHERE kind = $1 AND id = $2 AND version > $3
ORDER BY version, entry
LIMIT $4
