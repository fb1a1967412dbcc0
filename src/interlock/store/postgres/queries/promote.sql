SELECT interlock.promote($1, $2, $3)
