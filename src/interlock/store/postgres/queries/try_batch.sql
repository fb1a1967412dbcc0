SELECT tried.at FROM interlock.try_batch($1, $2, $3, $4, $5, $6, $7, $8) AS tried (at) WHERE tried.at IS NOT NULL
