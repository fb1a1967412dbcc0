SELECT interlock.raise_epoch($1)
