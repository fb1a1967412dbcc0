-- A decision that is too old has no shape: nothing is as it was foreseen.
SELECT id, given, rank, created_s, updated_at, foreseen, nothing, at
FROM interlock.claim_foreseen(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
    CASE WHEN greatest(clock_timestamp(), $2) <= $21 THEN $13 END, $14, $15, $16, $17, $18, $19, $20
)
