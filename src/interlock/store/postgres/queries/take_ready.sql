SELECT * FROM interlock.take_ready($1, $2, $3, $4, $5, $6, $7)
