-- Takes ready records of one kind for a claimer, who then decides and commits.
-- ARGV: kind, limit, floor, hold in microseconds, how many delayed ones to promote at most,
--       whether to ask for another round if there are more of them, packed as {queues, labels,
--       handlers, whether all handlers are meant}.
local kind, limit, bound = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[5])
local asked = cmsgpack.unpack(ARGV[7])
local known = call('MGET', P .. 'clock', P .. 'floor')
refuse_if_newer(known[2])
local now = time_now(known[1], ARGV[3])

-- Each delayed record is promoted once, so what this costs is spread over the records, not the claims.
local function promote()
  local delayed = key.delayed[kind]
  local ripe = call('ZRANGEBYSCORE', delayed, '-inf', whole(now), 'LIMIT', 0, bound)
  for _, id in ipairs(ripe) do
    local r = call('HMGET', key.record[kind] .. id, 'marks', 'rank')
    if r[2] then make_ready(kind, id, marks_of(r[1]), r[2]) end
    drop(delayed, id)
  end
  return #ripe
end

local has = {}
for _, label in ipairs(asked[2]) do has[label] = true end

local has_handler, handlers = { [0] = true }, asked[3] or {}
if #handlers > 0 then
  for _, number in ipairs(call('HMGET', P .. 'handlers', unpack(handlers))) do
    if number then has_handler[tonumber(number)] = true end
  end
end

local function may_take(lane, queue)
  if not asked[4] and not has_handler[#string.match(lane, SEPARATOR .. '*$')] then return false end
  for label in string.gmatch(string.sub(lane, #queue + 2), '[^' .. SEPARATOR .. ']+') do
    if not has[label] then return false end
  end
  return true
end

local function heads()
  local found, lanes = {}, 0
  for _, queue in ipairs(asked[1]) do
    local lanes_of_queue = key.lanes[kind] .. queue
    for _, lane in ipairs(call('SMEMBERS', lanes_of_queue)) do
      if may_take(lane, queue) then
        local first = call('ZRANGE', key.ready[kind] .. lane, 0, limit - 1, 'WITHSCORES')
        for i = 1, #first, 2 do found[#found + 1] = { tonumber(first[i + 1]), first[i], kind, lane } end
        if #first == 0 then call('SREM', lanes_of_queue, lane) else lanes = lanes + 1 end
      end
    end
  end
  if lanes > 1 then table.sort(found, by_score) end
  return found
end

-- What is taken of a lane is always its head, so it is cut off rather than looked up.
local function take(found, seen)
  local taken = {}
  for i = 1, seen do
    local lane = found[i][4]
    taken[lane] = (taken[lane] or 0) + 1
  end
  for lane, number in pairs(taken) do call('ZREMRANGEBYRANK', key.ready[kind] .. lane, 0, number - 1) end
end

release_forgotten(now)
local promoted = promote()
carry_out()
if promoted == bound and ARGV[6] == '1' then return false end
local found = heads()
local rows, bodies, seen = read_found(found, limit)
take(found, seen)
for _, row in ipairs(rows) do
  if row[6] ~= '' then drop(key.due[kind], row[10]) end
end
carry_out()
return { cmsgpack.pack({ now, hold(rows, ARGV[4], now), rows }), table.concat(bodies) }
