-- Takes records whose deadline has passed for a sweeper, which then decides and commits.
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
    'ZRANGEBYSCORE', name_of('deadline', kind), '-inf', whole(now), 'WITHSCORES', 'LIMIT', 0, limit
  )
  for i = 1, #overdue, 2 do found[#found + 1] = { tonumber(overdue[i + 1]), overdue[i], kind } end
end
table.sort(found, by_score)
for i = #found, limit + 1, -1 do found[i] = nil end

-- In stretches of one kind, and mostly there is one.
local answer, run = new_answer(), {}
for i, row in ipairs(found) do
  run[#run + 1] = row[2]
  if not found[i + 1] or found[i + 1][3] ~= row[3] then
    read_records(answer, row[3], run, function() return true end)
    run = {}
  end
end
for i = 1, answer.size do
  local shape, id = answer.which[i] + 1, { answer.ids[i] }
  local kind, r = answer.kinds[shape], line_of[answer.lines[shape]]
  drop_all(name_of('deadline', kind), id)
  if r.ready_at ~= '' then withdraw(kind, id, r.marks) end
end
carry_out()
return packed(answer, now, hold(answer, ARGV[3], now))
