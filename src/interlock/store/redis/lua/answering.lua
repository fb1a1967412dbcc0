-- Records for the reply. Lines that are the same are sent once, so an answer is two texts: what is where,
-- packed, and the lines and what was given one after the other, because they may hold any bytes.
local MOST_BYTES = 33554432

local function new_answer()
  return {
    ids = {}, which = {}, given_bytes = {}, kinds = {}, line_bytes = {}, lines = {}, given = {},
    places = {}, size = 0, bytes = 0, versions = {},
  }
end

local function add(answer, kind, id, line, given)
  local places = answer.places[kind]
  if not places then
    places = {}
    answer.places[kind] = places
  end
  local place = places[line]
  if not place then
    place = #answer.lines + 1
    answer.lines[place], answer.kinds[place], answer.line_bytes[place] = line, kind, #line
    places[line] = place
  end
  local n = answer.size + 1
  answer.size, answer.ids[n], answer.which[n] = n, id, place - 1
  answer.given_bytes[n], answer.given[n] = given and #given or 0, given or ''
  answer.bytes = answer.bytes + #line + (given and #given or 0)
end

local function packed(answer, ...)
  return {
    cmsgpack.pack({
      { answer.ids, answer.which, answer.given_bytes, answer.kinds, answer.line_bytes }, ...
    }),
    table.concat(answer.lines) .. table.concat(answer.given),
  }
end

-- Reads what was found in order, `found` being rows of {score, id, kind}, into an answer, until it has
-- MOST_BYTES. `passes` is asked about each line. Answers how many were looked at.
local function read_found(answer, found, passes)
  local seen, chunk = 0, 16
  while seen < #found and answer.bytes < MOST_BYTES do
    local keys, n = {}, math.min(chunk, #found - seen)
    for i = 1, n do
      local row = found[seen + i]
      keys[i], keys[n + i] = key.line[row[3]] .. row[2], key.given[row[3]] .. row[2]
    end
    local values = call('MGET', unpack(keys))
    for i = 1, n do
      local row, line = found[seen + i], values[i]
      if line and passes(line_of[line]) then add(answer, row[3], row[2], line, values[n + i]) end
    end
    seen = seen + n
    -- As many as fit if they are as large as those before.
    local room = math.floor((MOST_BYTES - answer.bytes) * seen / (answer.bytes + 1))
    chunk = math.max(1, math.min(room, STACK / 2))
  end
  return seen
end
