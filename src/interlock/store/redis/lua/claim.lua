-- Takes ready records of one kind for a claimer, which then decides and commits.
-- ARGV: kind, limit, floor, hold in microseconds, how many delayed ones to promote at most,
--       whether to ask for another round if there are more of them, packed as {queues, the parts of lanes
--       that the claimer has, whether it takes all handlers}.
local kind, limit, bound = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[5])
local asked = cmsgpack.unpack(ARGV[7])
local known = call('MGET', P .. 'clock', P .. 'floor')
refuse_if_newer(known[2])
local now = time_now(known[1], ARGV[3])

-- Each delayed record is promoted once, so what this costs is spread over the records, not the claims.
local function promote()
  local later = key.later[kind]
  local ripe = call('ZRANGEBYSCORE', later, '-inf', whole(now), 'LIMIT', 0, bound)
  local keys = {}
  for i, id in ipairs(ripe) do keys[i] = key.line[kind] .. id end
  for i, line in ipairs(values_of(keys)) do
    local r = line and line_of[line]
    if r and r.ready_at ~= '' then make_ready(kind, { ripe[i] }, marks_of[r.marks], r.ready_at) end
  end
  drop_all(later, ripe)
  return #ripe
end

local has = {}
for _, part in ipairs(asked[2]) do has[part] = true end

local function may_take(lane, queue)
  for part in string.gmatch(string.sub(lane, #queue + 2), '[^' .. SEPARATOR .. ']+') do
    if not (has[part] or (asked[3] and string.byte(part) == 29)) then return false end
  end
  return true
end

-- The lanes that have something for this claimer.
local function lanes()
  local found = {}
  for _, queue in ipairs(asked[1]) do
    local lanes_of_queue = key.queue[kind] .. queue
    for _, lane in ipairs(call('SMEMBERS', lanes_of_queue)) do
      if may_take(lane, queue) then
        local set = key.lane[kind] .. lane
        if call('EXISTS', set) == 1 then found[#found + 1] = set else call('SREM', lanes_of_queue, lane) end
      end
    end
  end
  return found
end

local function heads(sets)
  local found = {}
  for _, set in ipairs(sets) do
    local first = call('ZRANGE', set, 0, limit - 1, 'WITHSCORES')
    for i = 1, #first, 2 do found[#found + 1] = { tonumber(first[i + 1]), first[i], kind, set } end
  end
  if #sets > 1 then table.sort(found, by_score) end
  for i = #found, limit + 1, -1 do found[i] = nil end
  return found
end

-- What is taken of a lane is always its head, so it is cut off rather than looked up.
local function take(found, seen)
  local taken = {}
  for i = 1, seen do
    local set = found[i][4]
    taken[set] = (taken[set] or 0) + 1
  end
  for set, number in pairs(taken) do call('ZREMRANGEBYRANK', set, 0, number - 1) end
end

local due = {}
local function is_ready(r)
  due[r] = r.deadline_at ~= ''
  return r.ready_at ~= ''
end

release_forgotten(now)
local promoted = promote()
carry_out()
if promoted == bound and ARGV[6] == '1' then return false end
local found = heads(lanes())
local answer = new_answer()
take(found, read_found(answer, found, is_ready))
for i = 1, answer.size do
  if due[line_of[answer.lines[answer.which[i] + 1]]] then drop_all(key.deadline[kind], { answer.ids[i] }) end
end
carry_out()
return packed(answer, now, hold(answer, ARGV[4], now))
