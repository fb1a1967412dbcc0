-- Where records wait: ready in a lane, ready later, with a deadline, or held by a claimer that decides on them.
--
-- Changes to sorted sets are gathered and carried out together, one command for each set, or more where a
-- set is added to and taken from in turns: the last word on a member counts.
local plan, new_lanes = {}, {}

local function flush(set, wanted)
  if wanted.size > 0 then call(wanted.command, set, unpack(wanted, 1, wanted.size)) end
  wanted.size = 0
end

local function gathered(set, command)
  local wanted = plan[set]
  if not wanted then
    wanted = { size = 0 }
    plan[set] = wanted
  end
  if wanted.command ~= command then
    flush(set, wanted)
    wanted.command = command
  end
  return wanted
end

local function put_all(set, ids, score)
  local wanted = gathered(set, 'ZADD')
  local n = wanted.size
  for i = 1, #ids do
    wanted[n + 1], wanted[n + 2] = score, ids[i]
    n = n + 2
    if n >= STACK then
      wanted.size = n
      flush(set, wanted)
      n = 0
    end
  end
  wanted.size = n
end

local function drop_all(set, ids)
  local wanted = gathered(set, 'ZREM')
  local n = wanted.size
  for i = 1, #ids do
    n = n + 1
    wanted[n] = ids[i]
    if n >= STACK then
      wanted.size = n
      flush(set, wanted)
      n = 0
    end
  end
  wanted.size = n
end

local function carry_out()
  for set, wanted in pairs(plan) do flush(set, wanted) end
  for set, lanes in pairs(new_lanes) do
    for lane in pairs(lanes) do call('SADD', set, lane) end
  end
  plan, new_lanes = {}, {}
end

-- Queue, labels and handler, which decide who may take it. A handler begins with a character that no label has.
local function lane_of(marks)
  if not marks.lane then
    local parts = { marks.queue or '', unpack(marks.labels) }
    if marks.handler then parts[#parts + 1] = '\29' .. marks.handler end
    marks.lane = table.concat(parts, SEPARATOR)
  end
  return marks.lane
end

-- A step of priority is worth a minute: see ranking.py.
local function rank_of(ready_at, marks)
  return whole(tonumber(ready_at) - 60000000 * (marks.priority or 0))
end

local function make_ready(kind, ids, marks, ready_at)
  local lane = lane_of(marks)
  put_all(key('lane', kind, lane), ids, rank_of(ready_at, marks))
  local set = key('queue', kind, marks.queue)
  local lanes = new_lanes[set]
  if not lanes then
    lanes = {}
    new_lanes[set] = lanes
  end
  lanes[lane] = true
end

-- Into every set that they belong to by what they are. Doing it twice changes nothing.
local function place(kind, ids, marks, ready_at, deadline_at, now)
  if ready_at ~= '' then
    if tonumber(ready_at) <= now then
      make_ready(kind, ids, marks_of[marks], ready_at)
    else
      put_all(name_of('later', kind), ids, ready_at)
    end
  end
  if deadline_at ~= '' then put_all(name_of('deadline', kind), ids, deadline_at) end
end

-- Out of the sets in which they would be found ready.
local function withdraw(kind, ids, marks)
  drop_all(key('lane', kind, lane_of(marks_of[marks])), ids)
  drop_all(name_of('later', kind), ids)
end

-- A hold is one value, `taken:<number>`: a list of {kind, version, ids} of the records that were taken,
-- packed. `taken` sorts the numbers by when they run out. One hold covers both, ready and due: who claims a
-- record and who sweeps it exclude each other.
local function groups_of(answer)
  local by_line = {}
  for i, line in ipairs(answer.lines) do by_line[i] = { answer.kinds[i], line_of[line].version, {} } end
  if #by_line == 1 then
    by_line[1][3] = answer.ids
    return by_line
  end
  for i = 1, answer.size do
    local ids = by_line[answer.which[i] + 1][3]
    ids[#ids + 1] = answer.ids[i]
  end
  return by_line
end

local function hold(answer, hold_us, now)
  if answer.size == 0 then return '' end
  local number = whole(call('INCR', P .. 'holds'))
  call('MSET', P .. 'taken:' .. number, cmsgpack.pack(groups_of(answer)), P .. 'clock', whole(now))
  call('ZADD', P .. 'taken', whole(now + tonumber(hold_us)), number)
  return number
end

-- Back to where others look, unless somebody has changed it meanwhile: then it was placed again.
local function put_back(kind, version, ids, now)
  local keys, lines = {}, begin_of('line', kind)
  for i = 1, #ids do keys[i] = lines .. ids[i] end
  for i, line in ipairs(values_of(keys)) do
    local r = line and line_of[line]
    if r and r.version == version then place(kind, { ids[i] }, r.marks, r.ready_at, r.deadline_at, now) end
  end
end

local function held_by(number)
  return cmsgpack.unpack(call('GET', P .. 'taken:' .. number) or '\144')
end

local function end_hold(number)
  call('DEL', P .. 'taken:' .. number)
  call('ZREM', P .. 'taken', number)
end

-- Holds that have run out: their claimers have died, or are late and will meet newer versions if
-- somebody else has taken what they held.
local function release_forgotten(now)
  for _, number in ipairs(call('ZRANGEBYSCORE', P .. 'taken', '-inf', whole(now), 'LIMIT', 0, 3)) do
    for _, group in ipairs(held_by(number)) do put_back(group[1], group[2], group[3], now) end
    end_hold(number)
  end
end

local function by_score(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  return lower(a[2], b[2])
end
