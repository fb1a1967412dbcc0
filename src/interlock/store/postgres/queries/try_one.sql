SELECT written.at FROM interlock.write_batch($1, $2, $3, $4, $5, $6, $7, $8) AS written (at)
WHERE written.at IS NOT NULL
