-- Makes each commit of a batch true or not at all, in order, and lets go of what the caller held.
-- ARGV: the commits packed, floor, the number of the hold that ends with this ('' if none).
--
-- A commit is judged whole before anything of it is written, and nothing that is written can fail:
-- a server that is out of memory or read-only refuses the first write of a script, never a later one.
-- The records themselves are written at once, so the next commit of the batch is judged by them; the
-- sorted sets follow together at the end.
local known = call('MGET', P .. 'clock', P .. 'epoch', P .. 'sequence', P .. 'floor')
refuse_if_newer(known[4])
local now = time_now(known[1], ARGV[2])
local at = whole(now)
local epoch, sequence = known[2], tonumber(known[3] or 0)
local answers, texts, written = {}, {}, false
local JOURNAL = P .. 'journal'

local NEEDED = { 'version', 'state', 'created_at', 'marks', 'ready_at', 'deadline_at', 'updated_at' }

-- What the caller holds, unless the hold has run out and somebody has put it all back. Held records
-- stand in no set where others look, as long as they keep the version in which they were taken.
local flat, held = {}, {}
if ARGV[3] ~= '' then
  flat = cmsgpack.unpack(call('GET', P .. 'hold:' .. ARGV[3]) or '\144')
  for i = 1, #flat, 3 do held[key.record[flat[i]] .. flat[i + 1]] = flat[i + 2] end
end

-- The catalogue, asked once in a batch for each thing there is to know.
local function knowing(name)
  return setmetatable({}, {
    __index = function(kinds, kind)
      local set = P .. name .. ':' .. kind
      local of_kind = setmetatable({}, {
        __index = function(known_members, member)
          local is_there = call('SISMEMBER', set, member) == 1
          known_members[member] = is_there
          return is_there
        end,
      })
      kinds[kind] = of_kind
      return of_kind
    end,
  })
end
local is_path, is_end = knowing('table'), knowing('ends')

-- An expired request counts as unknown, also while the server has not removed it yet.
local function repeated(request)
  local r = call(
    'HMGET', P .. 'request:' .. request[1],
    'fingerprint', 'endpoint', 'status', 'created_at', 'expires_at', 'body'
  )
  if not r[1] or tonumber(r[5]) <= now then return nil end
  texts[#texts + 1] = r[6]
  local code = r[1] == request[3] and 'repeated' or 'reused'
  return { code, r[1], r[2], r[3], r[4], r[5], #texts }
end

local function refusal_of(commit, befores)
  if commit[1] then
    local earlier = repeated(commit[1])
    if earlier then return earlier end
  end
  if commit[2] and now > commit[2] then return { 'late' } end
  for i, change in ipairs(commit[3]) do
    local before = call('HMGET', key.record[change[1]] .. change[2], unpack(NEEDED))
    local found = before[1] or '0'
    -- After a fail-over that has lost writes the same number may stand for another version.
    if found ~= change[3] or (change[13] ~= '' and change[13] ~= before[7]) then
      return { 'conflict', i - 1, found }
    end
    befores[i] = before
  end
  for i, change in ipairs(commit[3]) do
    local source = befores[i][2] or ''
    if source ~= change[4] and not is_path[change[1]][source .. '>' .. change[4]] then
      return { 'illegal', i - 1, source }
    end
  end
  return nil
end

local function journal(kind, id, version, note)
  sequence = sequence + 1
  local cursor = epoch .. '-' .. whole(sequence)
  call('XADD', JOURNAL, cursor, 'kind', kind, 'id', id, 'version', version, 'at', at, 'note', note)
  call('RPUSH', key.history[kind] .. id, version .. ' ' .. cursor)
end

-- The indexes by creation, where what a record can be found by has changed.
local function reindex(kind, id, old, new, score)
  if old.queue ~= new.queue then
    if old.queue then drop(key.queue[kind] .. old.queue, id) end
    if new.queue then put(key.queue[kind] .. new.queue, id, score) end
  end
  if old.parent ~= new.parent then
    if old.parent then drop(key.parent[kind] .. old.parent, id) end
    if new.parent then put(key.parent[kind] .. new.parent, id, score) end
  end
  for _, label in ipairs(old.labels) do drop(key.label[kind] .. label, id) end
  for _, label in ipairs(new.labels) do put(key.label[kind] .. label, id, score) end
end

-- Only what differs is written: most fields stay as they are in most commits.
local fields, size
local function field(name, old, new)
  if old ~= new then
    fields[size + 1], fields[size + 2] = name, new
    size = size + 2
  end
end

local function write_record(record, change, before)
  fields = { 'version', change[11], 'updated_at', at, 'body', change[5] }
  size = 6
  field('state', before[2], change[4])
  field('created_at', before[3], before[3] or at)
  field('marks', before[4], change[6])
  if before[5] ~= change[7] or before[4] ~= change[6] then
    field('ready_at', before[5], change[7])
    if change[7] ~= '' then field('rank', nil, change[8]) end
  end
  field('deadline_at', before[6], change[9])
  -- Always empty: a program of an earlier version cannot read a record without this field.
  if not before[1] then field('chain', nil, '') end
  call('HSET', record, unpack(fields, 1, size))
end

-- What other tools may read of a record. Their keys are not ours to trust: whatever is there, the
-- commit stands, so what cannot be written is left as it is.
local function text_at(name)
  local text = redis.pcall('GET', name)
  return type(text) == 'string' and text or nil
end

-- Where the value of a field begins and ends in a JSON object that we have written. The value is a number,
-- a time or null, so it ends before a comma or a brace; within texts quotes are escaped, so that the name
-- of a field, with its quotes and its colon, is found only where the field is.
local function value_in(text, field)
  local _, before = string.find(text, field, 1, true)
  if not before then return nil end
  local after = string.find(text, '[,}]', before + 1)
  if not after then return nil end
  return before + 1, after - 1
end

local function replaced(text, field, value)
  local first, last = value_in(text, field)
  if not first then return text end
  return string.sub(text, 1, first - 1) .. value .. string.sub(text, last + 1)
end

local function keeping(text, name, fields)
  local shown_before = #fields > 0 and text_at(name)
  if not shown_before then return text end
  for _, field in ipairs(fields) do
    local first, last = value_in(shown_before, field)
    if first then text = replaced(text, field, string.sub(shown_before, first, last)) end
  end
  return text
end

local function show(shown, id, created_at, is_new)
  if not shown[2] then
    redis.pcall('DEL', shown[1])
  elseif shown[3] then
    redis.pcall('SET', shown[1], shown[2], 'PX', shown[3])
  else
    redis.pcall('SET', shown[1], is_new and shown[2] or keeping(shown[2], shown[1], shown[7]))
  end
  local text = shown[5] and text_at(shown[5])
  if text then
    for _, field in ipairs(shown[6]) do text = replaced(text, field[1], field[2]) end
    redis.pcall('SET', shown[5], text)
  end
  if shown[4] then
    redis.pcall('ZADD', shown[4], string.format('%.6f', tonumber(created_at) / 1000000), id)
  end
end

local NO_MARKS = { labels = {} }

local function write(change, before)
  local kind, id, state, marks = change[1], change[2], change[4], change[6]
  local record, created_at = key.record[kind] .. id, before[3] or at
  write_record(record, change, before)
  if not before[1] then put(key.created[kind], id, at) end
  if before[2] ~= state then
    if before[2] then
      drop(key.state[kind] .. before[2], id)
      if is_end[kind][before[2]] then drop(key.ended[kind] .. before[2], id) end
    end
    put(key.state[kind] .. state, id, created_at)
  end
  if before[4] ~= marks then
    reindex(kind, id, before[4] and marks_of(before[4]) or NO_MARKS, marks_of(marks), created_at)
  end
  if is_end[kind][state] then put(key.ended[kind] .. state, id, at) end
  if before[1] and held[record] ~= before[1] then
    if before[5] ~= '' then withdraw(kind, id, before[4]) end
    if before[6] ~= '' and change[9] == '' then drop(key.due[kind], id) end
  end
  held[record] = nil
  place(kind, id, marks, change[7], change[8], change[9], now)
  if change[10] then journal(kind, id, change[11], change[10]) end
  if change[12] then show(change[12], id, created_at, not before[1]) end
end

local function remember(request)
  local kept = P .. 'request:' .. request[1]
  local expires = now + request[6]
  call('HSET', kept, 'endpoint', request[2], 'fingerprint', request[3], 'status', request[4],
    'body', request[5], 'created_at', at, 'expires_at', whole(expires))
  put(P .. 'requests', request[1], whole(expires))
  -- The server's clock is never ahead of ours, so it removes nothing that still counts.
  call('PEXPIREAT', kept, whole(math.ceil(expires / 1000)))
end

for i, commit in ipairs(cmsgpack.unpack(ARGV[1])) do
  local befores = {}
  answers[i] = refusal_of(commit, befores) or 0
  if answers[i] == 0 then
    for c, change in ipairs(commit[3]) do write(change, befores[c]) end
    for _, refused in ipairs(commit[4]) do
      local version = call('HGET', key.record[refused[1]] .. refused[2], 'version') or '0'
      journal(refused[1], refused[2], version, refused[3])
    end
    if commit[1] then remember(commit[1]) end
    written = true
  end
end
for i = 1, #flat, 3 do
  if held[key.record[flat[i]] .. flat[i + 1]] then put_back(flat[i], flat[i + 1], flat[i + 2], now) end
end
carry_out()
if ARGV[3] ~= '' then end_hold(ARGV[3]) end
if written then
  call('MSET', P .. 'clock', at, P .. 'sequence', whole(sequence))
  call('PUBLISH', P .. 'wake', '')
end
return { cmsgpack.pack({ now, answers }), unpack(texts) }
