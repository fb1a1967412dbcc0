-- Takes records whose deadline has passed for a sweeper, who then decides and commits.
-- ARGV: limit, floor, hold in microseconds, kinds packed.
local limit = tonumber(ARGV[1])
local known = call('MGET', P .. 'clock', P .. 'floor')
refuse_if_newer(known[2])
local now = time_now(known[1], ARGV[2])

release_forgotten(now)
carry_out()
local found = {}
for _, kind in ipairs(cmsgpack.unpack(ARGV[4])) do
  local overdue = call(
    'ZRANGEBYSCORE', key.due[kind], '-inf', whole(now), 'WITHSCORES', 'LIMIT', 0, limit
  )
  for i = 1, #overdue, 2 do found[#found + 1] = { tonumber(overdue[i + 1]), overdue[i], kind } end
end
table.sort(found, by_score)
local rows, bodies = read_found(found, limit)
for _, row in ipairs(rows) do
  drop(key.due[row[9]], row[10])
  if row[5] ~= '' then withdraw(row[9], row[10], row[7]) end
end
carry_out()
return { cmsgpack.pack({ now, hold(rows, ARGV[3], now), rows }), table.concat(bodies) }
