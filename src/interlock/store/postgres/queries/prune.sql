SELECT * FROM interlock.prune($1, $2, $3, $4, $5)
