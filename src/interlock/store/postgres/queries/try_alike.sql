SELECT tried.at FROM interlock.try_alike($1, $2, $3, $4, $5, $6, $7) AS tried (at) WHERE tried.at IS NOT NULL
