-- What every script begins with: names of keys, the clock, and reading a record.
--
-- KEYS[1] is the hash tag "{prefix}". Every key of a store begins with it, so that all of them live
-- in one slot of a cluster; the keys themselves depend on the data and are made here.
-- A bare shell can still write to these keys: Redis has no constraints. What refuses illegal states
-- is that every program goes through these scripts.
local P = KEYS[1] .. ':'
local call = redis.call
local SEPARATOR = '\31'

local FIELDS = {
  'state', 'version', 'created_at', 'updated_at', 'ready_at', 'deadline_at', 'marks', 'body',
}

-- What a record can be found by is one field, `marks`: {"queue", "labels", "parent", "priority", "handler"}
-- as JSON without what is empty. It seldom changes, so it is mostly compared whole, and the same marks
-- on many records are read once.
local read_marks = {}
local function marks_of(text)
  local marks = read_marks[text]
  if not marks then
    marks = cjson.decode(text)
    marks.labels = marks.labels or {}
    read_marks[text] = marks
  end
  return marks
end

-- Queue, labels and handler, which decide who may take it. The handler is a number, and that is how many
-- separators end the lane: a program of an earlier version, which knows of no handlers, finds no label in
-- them and takes it, as it takes everything. So that lanes do not get long, only so many have a number.
local MOST_HANDLERS = 1000
local function lane_of(marks)
  if not marks.lane then
    local number = 0
    if marks.handler then
      number = call('HGET', P .. 'handlers', marks.handler)
      if not number then
        number = math.min(call('HLEN', P .. 'handlers') + 1, MOST_HANDLERS + 1) % (MOST_HANDLERS + 1)
        if number > 0 then call('HSET', P .. 'handlers', marks.handler, number) end
      end
    end
    local lane = table.concat({ marks.queue or '', unpack(marks.labels) }, SEPARATOR)
    marks.lane = lane .. string.rep(SEPARATOR, tonumber(number))
  end
  return marks.lane
end

-- Lua's own comparison follows the locale of the server; sorted sets compare bytes, and so does Python.
local function lower(a, b)
  if a == b then return false end
  local length = math.min(#a, #b)
  for i = 1, length do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- Whole numbers below 2^53 are exact in a double, and microseconds stay below that until the year 2255.
local function whole(number)
  return string.format('%d', number)
end

-- The server's time, held back from going back: neither behind what was ever written (`clock`), nor
-- behind what this caller has already been told (`floor`).
local function time_now(written, floor)
  local parts = call('TIME')
  local now = tonumber(parts[1]) * 1000000 + tonumber(parts[2])
  return math.max(now, tonumber(written or 0), tonumber(floor))
end

-- A newer program may migrate the store under a running one, and say that it must not write any more.
local function refuse_if_newer(floor)
  if tonumber(floor or 0) > KNOWN then
    error('NEWERSCHEMA ' .. call('HGET', P .. 'schema', 'version'))
  end
end

-- Keys begin with a name and mostly a kind. Joining texts is a good part of what a script costs, so
-- what is needed for every record is joined once: `key.record[kind] .. id`, `key.due[kind]`.
local key = setmetatable({}, {
  __index = function(keys, name)
    local ending = (name == 'created' or name == 'delayed' or name == 'due') and '' or ':'
    local of_kinds = setmetatable({}, {
      __index = function(kinds, kind)
        local joined = P .. name .. ':' .. kind .. ending
        kinds[kind] = joined
        return joined
      end,
    })
    keys[name] = of_kinds
    return of_kinds
  end,
})

-- A record for the reply, its body apart: bodies may hold any bytes, and go back as one long string.
local function read_row(kind, id, bodies)
  local values = call('HMGET', key.record[kind] .. id, unpack(FIELDS))
  if not values[1] then return false end
  local body = values[8]
  bodies[#bodies + 1] = body
  values[8] = #body
  values[9] = kind
  values[10] = id
  return values
end
