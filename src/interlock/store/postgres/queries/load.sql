SELECT * FROM interlock.load($1, $2)
