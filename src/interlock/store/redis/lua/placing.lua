-- Where records wait: ready in a lane, delayed, due, or held by somebody who is deciding on them.
--
-- Changes to sorted sets are planned first and carried out together, one command for each set: the
-- last word on a member counts. Their order among each other does not matter, and what is replicated
-- is their effect.
local plan, new_lanes = {}, {}

local function put(set, member, score)
  local wanted = plan[set]
  if not wanted then
    wanted = {}
    plan[set] = wanted
  end
  wanted[member] = score
end

local function drop(set, member)
  put(set, member, false)
end

-- Arguments go over the Lua stack, which has room for about 8,000.
local STACK = 2000

local function carry_out()
  for set, wanted in pairs(plan) do
    local added, removed, a, r = {}, {}, 0, 0
    for member, score in pairs(wanted) do
      if score then
        added[a + 1], added[a + 2] = score, member
        a = a + 2
      else
        r = r + 1
        removed[r] = member
      end
      if a == STACK then
        call('ZADD', set, unpack(added, 1, a))
        a = 0
      elseif r == STACK then
        call('ZREM', set, unpack(removed, 1, r))
        r = 0
      end
    end
    if a > 0 then call('ZADD', set, unpack(added, 1, a)) end
    if r > 0 then call('ZREM', set, unpack(removed, 1, r)) end
  end
  for set, lanes in pairs(new_lanes) do
    for lane in pairs(lanes) do call('SADD', set, lane) end
  end
  plan, new_lanes = {}, {}
end

local function make_ready(kind, id, marks, rank)
  local lane = lane_of(marks)
  put(key.ready[kind] .. lane, id, rank)
  local set = key.lanes[kind] .. marks.queue
  local lanes = new_lanes[set]
  if not lanes then
    lanes = {}
    new_lanes[set] = lanes
  end
  lanes[lane] = true
end

-- Into every set that it belongs to by what it is. Doing it twice changes nothing.
local function place(kind, id, marks, ready_at, rank, deadline_at, now)
  if ready_at ~= '' then
    if tonumber(ready_at) <= now then
      make_ready(kind, id, marks_of(marks), rank)
    else
      put(key.delayed[kind], id, ready_at)
    end
  end
  if deadline_at ~= '' then put(key.due[kind], id, deadline_at) end
end

-- Out of the sets in which it would be found ready.
local function withdraw(kind, id, marks)
  drop(key.ready[kind] .. lane_of(marks_of(marks)), id)
  drop(key.delayed[kind], id)
end

-- A hold is one value, `hold:<number>`: kind, id and version of each record that was taken, flat and
-- packed. `held` sorts the numbers by when they run out. One hold covers both, ready and due: who
-- claims a record and who sweeps it exclude each other.
local function hold(rows, hold_us, now)
  if #rows == 0 then return '' end
  local flat, n = {}, 0
  for _, row in ipairs(rows) do
    flat[n + 1], flat[n + 2], flat[n + 3] = row[9], row[10], row[2]
    n = n + 3
  end
  local number = whole(call('INCR', P .. 'holds'))
  call('MSET', P .. 'hold:' .. number, cmsgpack.pack(flat), P .. 'clock', whole(now))
  call('ZADD', P .. 'held', whole(now + tonumber(hold_us)), number)
  return number
end

-- Back to where others look, unless somebody has changed it meanwhile: then it was placed again.
local function put_back(kind, id, version, now)
  local r = call('HMGET', key.record[kind] .. id, 'version', 'marks', 'ready_at', 'rank', 'deadline_at')
  if r[1] == version then place(kind, id, r[2], r[3], r[4], r[5], now) end
end

local function end_hold(number)
  call('DEL', P .. 'hold:' .. number)
  call('ZREM', P .. 'held', number)
end

-- Holds that have run out: their claimers have died, or are late and will meet newer versions if
-- somebody else has taken what they held.
local function release_forgotten(now)
  for _, number in ipairs(call('ZRANGEBYSCORE', P .. 'held', '-inf', whole(now), 'LIMIT', 0, 3)) do
    local flat = cmsgpack.unpack(call('GET', P .. 'hold:' .. number) or '\144')
    for i = 1, #flat, 3 do put_back(flat[i], flat[i + 1], flat[i + 2], now) end
    end_hold(number)
  end
end

-- Reads what was found in order, `found` being rows of {score, id, kind, lane if any}, up to `limit` records or
-- 32 MB. Answers the rows, their bodies, and how many were looked at.
local function read_found(found, limit)
  local rows, bodies, bytes, seen = {}, {}, 0, 0
  while seen < math.min(limit, #found) and bytes < 33554432 do
    seen = seen + 1
    local row = read_row(found[seen][3], found[seen][2], bodies)
    -- A program that does not know of handlers withdraws a record from another lane than the one it is in.
    if row and found[seen][4] and row[5] == '' then
      row, bodies[#bodies] = false, nil
    end
    if row then
      rows[#rows + 1] = row
      bytes = bytes + row[8]
    end
  end
  return rows, bodies, seen
end

local function by_score(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  return lower(a[2], b[2])
end
