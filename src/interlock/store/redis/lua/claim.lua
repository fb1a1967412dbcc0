-- Takes ready records of one kind for a claimer, which then decides and commits.
-- ARGV: kind, limit, floor, hold in microseconds, how many delayed ones to promote at most,
--       whether to ask for another round if there are more of them, packed as {queues, the parts of lanes
--       that the claimer has, whether it takes all handlers, the guard if any: {kind, id, states}}.
local kind, limit, bound = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[5])
local asked = cmsgpack.unpack(ARGV[7])
local known = call('MGET', P .. 'clock', P .. 'floor')
refuse_if_newer(known[2])
local now = time_now(known[1], ARGV[3])

-- Each delayed record is promoted once, so what this costs is spread over the records, not the claims.
local function promote()
  local later = name_of('later', kind)
  local ripe = call('ZRANGEBYSCORE', later, '-inf', whole(now), 'LIMIT', 0, bound)
  local keys, lines = {}, begin_of('line', kind)
  for i, id in ipairs(ripe) do keys[i] = lines .. id end
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
    local lanes_of_queue = key('queue', kind, queue)
    for _, lane in ipairs(call('SMEMBERS', lanes_of_queue)) do
      if may_take(lane, queue) then
        local set = key('lane', kind, lane)
        if call('EXISTS', set) == 1 then found[#found + 1] = set else call('SREM', lanes_of_queue, lane) end
      end
    end
  end
  return found
end

-- The ids that come first, and in which lane each of them is: one text where all are in the same.
local function heads(sets)
  if #sets == 1 then return call('ZRANGE', sets[1], 0, limit - 1), sets[1] end
  local found, ids, where = {}, {}, {}
  for _, set in ipairs(sets) do
    local first = call('ZRANGE', set, 0, limit - 1, 'WITHSCORES')
    for i = 1, #first, 2 do found[#found + 1] = { tonumber(first[i + 1]), first[i], set } end
  end
  table.sort(found, by_score)
  for i = 1, math.min(limit, #found) do ids[i], where[i] = found[i][2], found[i][3] end
  return ids, where
end

-- What is taken of a lane is always its head, so it is cut off rather than looked up.
local function take(where, seen)
  local taken = {}
  if type(where) == 'string' then taken[where] = seen end
  for i = 1, type(where) == 'table' and seen or 0 do taken[where[i]] = (taken[where[i]] or 0) + 1 end
  for set, number in pairs(taken) do call('ZREMRANGEBYRANK', set, 0, number - 1) end
end

-- Whether the record that guards the claim, if there is one, is in a state in which it may take.
local function is_allowed(guard)
  if not guard or #guard == 0 then return true end
  local line = call('GET', key('line', guard[1], guard[2]))
  local state = line and line_of[line].state
  for _, wanted in ipairs(guard[3]) do
    if state == wanted then return true end
  end
  return false
end

local some_have_deadlines = false
local function is_ready(r)
  some_have_deadlines = some_have_deadlines or r.deadline_at ~= ''
  return r.ready_at ~= ''
end

release_forgotten(now)
local promoted = promote()
carry_out()
if promoted == bound and ARGV[6] == '1' then return false end
local ids, where = {}, {}
if is_allowed(asked[4]) then ids, where = heads(lanes()) end
local answer = new_answer()
local seen = read_records(answer, kind, ids, is_ready)
if seen > 0 then take(where, seen) end
if some_have_deadlines then drop_all(name_of('deadline', kind), answer.ids) end
carry_out()
return packed(answer, now, hold(answer, ARGV[4], now))
