SELECT id, endpoint, fingerprint, status, body, created_at, expires_at
FROM interlock.request
WHERE id = $2 AND expires_at > greatest(clock_timestamp(), $1)
