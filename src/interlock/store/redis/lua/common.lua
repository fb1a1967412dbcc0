-- What every script begins with: names of keys, the clock, and lines.
--
-- KEYS[1] is the hash tag "{prefix}". Every key of a store begins with it, so that all of them live
-- in one slot of a cluster; the keys themselves depend on the data and are made here.
-- A bare shell can still write to these keys: Redis has no constraints. What refuses illegal states
-- is that every program goes through these scripts.
local P = KEYS[1] .. ':'
local call = redis.call
local SEPARATOR = '\31'

-- Arguments go over the Lua stack, which has room for about 8,000.
local STACK = 4000

local JOURNAL = P .. 'journal'

-- Keys: what a kind has one of, what it has many of, and what these begin with where many are made.
local function name_of(name, kind)
  return P .. name .. ':' .. kind
end

local function key(name, kind, id)
  return P .. name .. ':' .. kind .. ':' .. id
end

local function begin_of(name, kind)
  return P .. name .. ':' .. kind .. ':'
end

-- What changes of a record is one text, its line: nine fields, each ended by a line break, then the body
-- and the result. Records that were treated alike have the same line, so each text is read once in a script.
local LINE = '^' .. string.rep('([^\n]*)\n', 9) .. '()'
local line_of = setmetatable({}, {
  __index = function(lines, text)
    local version, state, created_at, updated_at, ready_at, deadline_at, marks, trail, size, data =
      string.match(text, LINE)
    local read = {
      version = version, state = state, created_at = created_at, updated_at = updated_at,
      ready_at = ready_at, deadline_at = deadline_at, marks = marks, trail = trail,
      body = data, result = data + tonumber(size), text = text,
    }
    lines[text] = read
    return read
  end,
})

-- What a record can be found by is one field, `marks`: {"queue", "labels", "parent", "priority", "handler"}
-- as JSON without what is empty. It seldom changes, so it is mostly compared whole.
local marks_of = setmetatable({}, {
  __index = function(read, text)
    local marks = cjson.decode(text)
    marks.labels = marks.labels or {}
    read[text] = marks
    return marks
  end,
})

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

-- The values of any number of keys, in their order.
local function values_of(keys)
  if #keys <= STACK then return #keys > 0 and call('MGET', unpack(keys)) or {} end
  local values = {}
  for first = 1, #keys, STACK do
    local last = math.min(first + STACK - 1, #keys)
    for i, value in ipairs(call('MGET', unpack(keys, first, last))) do values[first + i - 1] = value end
  end
  return values
end
