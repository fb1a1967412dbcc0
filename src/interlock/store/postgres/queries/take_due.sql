SELECT * FROM interlock.take_due($1, $2, $3, $4)
