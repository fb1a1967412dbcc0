-- What was answered to a request, unless it has expired. ARGV: request id, floor.
local now = time_now(call('GET', P .. 'clock'), ARGV[2])
local r = call(
  'HMGET', P .. 'request:' .. ARGV[1], 'fingerprint', 'endpoint', 'status', 'created_at', 'expires_at', 'body'
)
if not r[1] or tonumber(r[5]) <= now then return false end
return r
