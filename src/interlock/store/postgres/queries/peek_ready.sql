SELECT * FROM interlock.peek_ready($1, $2, $3, $4, $5, $6)
