-- What every migration ends with: the store has come so far.
call('HSET', P .. 'schema', 'version', NUMBER)
call('HSET', P .. 'migrations', NUMBER, FINGERPRINT)
if FLOOR > 0 then call('SET', P .. 'floor', FLOOR) end
