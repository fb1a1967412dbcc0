-- Records for the reply. Lines that are the same are sent once, so an answer is two texts: what is where,
-- packed, and the lines and what was given one after the other, because they may hold any bytes.
local MOST_BYTES = 33554432

local function new_answer()
  return {
    ids = {}, which = {}, given_bytes = {}, kinds = {}, line_bytes = {}, lines = {}, given = {},
    places = {}, size = 0, bytes = 0,
  }
end

-- Where a line is among those of the answer, counted from zero.
local function place_of(answer, kind, line)
  local places = answer.places[kind]
  if not places then
    places = {}
    answer.places[kind] = places
  end
  local place = places[line]
  if not place then
    place = #answer.lines
    answer.lines[place + 1], answer.kinds[place + 1], answer.line_bytes[place + 1] = line, kind, #line
    places[line] = place
  end
  return place
end

local function add(answer, id, place, given)
  local n = answer.size + 1
  answer.size, answer.ids[n], answer.which[n] = n, id, place
  answer.given_bytes[n], answer.given[n] = #given, given
  answer.bytes = answer.bytes + #given
end

local function packed(answer, ...)
  return {
    cmsgpack.pack({
      { answer.ids, answer.which, answer.given_bytes, answer.kinds, answer.line_bytes }, ...
    }),
    table.concat(answer.lines) .. table.concat(answer.given),
  }
end

-- Reads records of one kind in order into an answer, until it has MOST_BYTES. `passes` is asked about each
-- line. Answers how many were looked at.
local function read_records(answer, kind, ids, passes)
  local seen, chunk, line_key, given_key = 0, 16, begin_of('line', kind), begin_of('given', kind)
  local last, place
  while seen < #ids and answer.bytes < MOST_BYTES do
    local keys, n = {}, math.min(chunk, #ids - seen)
    for i = 1, n do
      local id = ids[seen + i]
      keys[i], keys[n + i] = line_key .. id, given_key .. id
    end
    local values = call('MGET', unpack(keys))
    for i = 1, n do
      local line = values[i]
      if line ~= last then
        last, place = line, line and passes(line_of[line]) and place_of(answer, kind, line)
      end
      if place then
        add(answer, ids[seen + i], place, values[n + i] or '')
        answer.bytes = answer.bytes + #line
      end
    end
    seen = seen + n
    -- As many as fit if they are as large as those before.
    local room = math.floor((MOST_BYTES - answer.bytes) * seen / (answer.bytes + 1))
    chunk = math.max(1, math.min(room, STACK / 2))
  end
  return seen
end
