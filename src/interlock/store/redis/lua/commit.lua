-- Makes each commit of a call true or not at all, in order, and lets go of what the caller held.
-- ARGV: the work packed, floor, the number of the hold that ends with this ('' if none).
--
-- A commit is {request, not after, changes, refusals}; with true at its end it is a batch: one change whose
-- records succeed or fail each by itself. A change is {kind, ids, expected version, version after it, state, body
-- (a list where each record has its own), marks, ready at, deadline at, note, when the expected version was written (a list, if not at one time for
-- all), given (a list, or false), results (likewise), what is shown}.
--
-- A commit is judged whole before anything of it is written, and nothing that is written can fail:
-- a server that is out of memory or read-only refuses the first write of a script, never a later one.
-- Lines are read together at the beginning and written together at the end, and so are the sorted sets.
local known = call('MGET', P .. 'clock', P .. 'epoch', P .. 'sequence', P .. 'floor', P .. 'entries')
refuse_if_newer(known[4])
local now = time_now(known[1], ARGV[2])
local at = whole(now)
local epoch, sequence = known[2], tonumber(known[3] or 0)
local answers, texts, has_written = {}, {}, false
local work = cmsgpack.unpack(ARGV[1])

-- What the caller holds, by kind and id in which version, unless the hold has run out and somebody has put it
-- all back. Held records stand in no set where others look, as long as they keep that version.
local held = {}
if ARGV[3] ~= '' then
  for _, group in ipairs(held_by(ARGV[3])) do
    local of_kind, version = held[group[1]] or {}, group[2]
    for _, id in ipairs(group[3]) do of_kind[id] = version end
    held[group[1]] = of_kind
  end
end

-- The catalogue, asked once in a call for each thing there is to know.
local asked = {}
local function is_in(name, kind, member)
  local question = name .. kind .. '\n' .. member
  local answer = asked[question]
  if answer == nil then
    answer = call('SISMEMBER', name_of(name, kind), member) == 1
    asked[question] = answer
  end
  return answer
end

-- Lines of all records of the call, in the order in which they come, and what was written over them since.
local names, lines, next_line, over, pending, waiting = {}, nil, 1, {}, {}, 0
local remembers = #work > 1 or (#work == 1 and #work[1][4] > 0)
local function read_lines()
  local n = 0
  for _, commit in ipairs(work) do
    for _, change in ipairs(commit[3]) do
      local prefix = begin_of('line', change[1])
      for _, id in ipairs(change[2]) do
        n = n + 1
        names[n] = prefix .. id
      end
    end
  end
  lines = values_of(names)
end

local function write_lines()
  for first = 1, waiting, STACK do
    call('MSET', unpack(pending, first, math.min(first + STACK - 1, waiting)))
  end
end

local function set(name, text)
  pending[waiting + 1], pending[waiting + 2] = name, text
  waiting = waiting + 2
end

-- Whether what is written may be read again in this call: by a later commit, or by a refusal of the same.
local remembers = #work > 1
for _, commit in ipairs(work) do remembers = remembers or #commit[4] > 0 end

-- Entries that say the same about different records are one row of the journal.
local row
local function end_row()
  if not row then return end
  call(
    'XADD', JOURNAL, epoch .. '-' .. whole(sequence), 'kind', row.kind, 'ids', table.concat(row.ids, '\n'),
    'n', #row.ids, 'version', row.version, 'at', at, 'note', row.note
  )
  row = nil
end

local MOST_IN_A_ROW = 1000
local function journal(kind, ids, version, note)
  if row and (row.kind ~= kind or row.version ~= version or row.note ~= note
    or #row.ids + #ids > MOST_IN_A_ROW) then end_row() end
  row = row or { kind = kind, version = version, note = note, ids = {} }
  local all, n = row.ids, #row.ids
  for i = 1, #ids do all[n + i] = ids[i] end
  sequence = sequence + #ids
end

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

local NONE = {
  version = '0', state = '', ready_at = '', deadline_at = '', marks = '{}', trail = '', text = '', result = 1,
}

-- After a fail-over that has lost writes the same number may stand for another version.
local function conflict(change, i, before)
  local seen = change[11]
  if type(seen) == 'table' then seen = seen[i] end
  local other = before ~= NONE and seen ~= '' and seen ~= before.updated_at
  return before.version ~= change[3] or other
end

local function is_illegal(change, before)
  local source, target = before.state, change[5]
  return source ~= target and not is_in('path', change[1], source .. '>' .. target)
end

-- The indexes by creation, where what a record can be found by has changed.
local function reindex(kind, ids, old, new, score)
  if old.queue ~= new.queue then
    if old.queue then drop_all(key('queued', kind, old.queue), ids) end
    if new.queue then put_all(key('queued', kind, new.queue), ids, score) end
  end
  if old.parent ~= new.parent then
    if old.parent then drop_all(key('parent', kind, old.parent), ids) end
    if new.parent then put_all(key('parent', kind, new.parent), ids, score) end
  end
  for _, label in ipairs(old.labels) do drop_all(key('label', kind, label), ids) end
  for _, label in ipairs(new.labels) do put_all(key('label', kind, label), ids, score) end
end

-- Sorted sets of records that were the same and become the same.
local function index(change, before, ids, are_held)
  local kind, state, marks, created_at = change[1], change[5], change[7], before.created_at or at
  if before == NONE then put_all(name_of('created', kind), ids, at) end
  if before.state ~= state then
    if before ~= NONE then
      drop_all(key('state', kind, before.state), ids)
      if is_in('ends', kind, before.state) then drop_all(key('end', kind, before.state), ids) end
    end
    put_all(key('state', kind, state), ids, created_at)
  end
  if before.marks ~= marks then reindex(kind, ids, marks_of[before.marks], marks_of[marks], created_at) end
  if is_in('ends', kind, state) then put_all(key('end', kind, state), ids, at) end
  if before ~= NONE and not are_held then
    if before.ready_at ~= '' then withdraw(kind, ids, before.marks) end
    if before.deadline_at ~= '' and change[9] == '' then drop_all(name_of('deadline', kind), ids) end
  end
  place(kind, ids, marks, change[8], change[9], now)
end

-- A line names the latest steps, and the list of the record those before: few records come to a list.
local MOST_STEPS = 8
local function spill(kind, id, trail)
  for step in string.gmatch(trail, '[^,]+') do call('RPUSH', key('history', kind, id), step) end
end

local function heading(version, state, created_at, updated_at, ready_at, deadline_at, marks, trail)
  return table.concat({ version, state, created_at, updated_at, ready_at, deadline_at, marks, trail }, '\n')
end

local function with_body(head, body)
  return head .. '\n' .. #body .. '\n' .. body
end

-- What becomes of records that were the same: the text of their lines up to the result, and the result that stays.
local function becoming(change, before)
  local trail, spills = before.trail, nil
  if change[10] then
    local _, commas = string.gsub(trail, ',', '')
    if commas + 2 > MOST_STEPS then spills, trail = trail, '' end
    local step = change[4] .. ' ' .. epoch .. '-' .. whole(sequence + 1)
    trail = trail == '' and step or trail .. ',' .. step
  end
  local begin, rest = heading(
    change[4], change[5], before.created_at or at, at, change[8], change[9], change[7], trail
  ), string.sub(before.text, before.result)
  local found = { ids = {}, n = 0, held_ids = {}, held_n = 0, spills = spills, begin = begin, rest = rest }
  if type(change[6]) == 'string' then
    found.head = with_body(begin, change[6])
    found.line = found.head .. rest
  end
  return found
end

-- Writes a change of those records that are in `befores`, each beside its id; their names begin at a place.
local function write(change, befores, first)
  local kind, ids, given, results = change[1], change[2], change[12], change[13]
  local mine, groups, done, n = held[kind] or {}, {}, {}, 0
  local given_key, group, last = begin_of('given', kind), nil, nil
  local bodies = type(change[6]) == 'table' and change[6]
  for i = 1, #ids do
    local before, id = befores[i], ids[i]
    if before then
      if before ~= last then
        group, last = groups[before], before
        if not group then
          group = becoming(change, before)
          groups[before] = group
        end
      end
      local name, line = names[first + i - 1], group.line
      if bodies then line = with_body(group.begin, bodies[i]) .. group.rest end
      if results then line = group.head .. results[i] end
      pending[waiting + 1], pending[waiting + 2] = name, line
      waiting = waiting + 2
      if given then set(given_key .. id, given[i]) end
      if remembers then over[name] = line end
      if group.spills then spill(kind, id, group.spills) end
      if mine[id] == before.version then
        group.held_n = group.held_n + 1
        group.held_ids[group.held_n] = id
      else
        group.n = group.n + 1
        group.ids[group.n] = id
      end
      mine[id] = nil
      n = n + 1
      done[n] = id
    end
  end
  for before, alike in pairs(groups) do
    if alike.n > 0 then index(change, before, alike.ids, false) end
    if alike.held_n > 0 then index(change, before, alike.held_ids, true) end
  end
  if change[10] and n > 0 then journal(kind, done, change[4], change[10]) end
  if change[14] and n > 0 then
    local before = befores[1]
    show(change[14], ids[1], before.created_at or at, before == NONE)
  end
  has_written = has_written or n > 0
end

-- Reads the records of a change as they are now; answers also where their names begin.
local function befores_of(change)
  local befores, first, looks = {}, next_line, next(over) ~= nil
  for i = 1, #change[2] do
    local line = lines[next_line]
    if looks then line = over[names[next_line]] or line end
    befores[i] = line and line_of[line] or NONE
    next_line = next_line + 1
  end
  return befores, first
end

local function refusal_of(commit, befores)
  if commit[1] then
    local earlier = repeated(commit[1])
    if earlier then return earlier end
  end
  if commit[2] and now > commit[2] then return { 'late' } end
  local place = 0
  for i, change in ipairs(commit[3]) do
    for j, before in ipairs(befores[i]) do
      if conflict(change, j, before) then return { 'conflict', place, before.version } end
      place = place + 1
    end
  end
  place = 0
  for i, change in ipairs(commit[3]) do
    local last
    for _, before in ipairs(befores[i]) do
      if before ~= last and is_illegal(change, before) then return { 'illegal', place, before.state } end
      last, place = before, place + 1
    end
  end
  return nil
end

-- The record stays as it is, but its list goes on in order: so its latest steps are put there first.
local function refuse(refused)
  local kind, id = refused[1], refused[2]
  local name = key('line', kind, id)
  local line = over[name] or call('GET', name)
  local r = line and line_of[line] or NONE
  if r.trail ~= '' then
    spill(kind, id, r.trail)
    local body = string.sub(line, r.body, r.result - 1)
    local head = heading(
      r.version, r.state, r.created_at, r.updated_at, r.ready_at, r.deadline_at, r.marks, ''
    )
    over[name] = with_body(head, body) .. string.sub(line, r.result)
    set(name, over[name])
  end
  end_row()
  journal(kind, { id }, r.version, refused[3])
  end_row()
  call('RPUSH', key('history', kind, id), r.version .. ' ' .. epoch .. '-' .. whole(sequence))
end

local function remember(request)
  local kept = P .. 'request:' .. request[1]
  local expires = now + request[6]
  call('HSET', kept, 'endpoint', request[2], 'fingerprint', request[3], 'status', request[4],
    'body', request[5], 'created_at', at, 'expires_at', whole(expires))
  put_all(P .. 'requests', { request[1] }, whole(expires))
  -- The server's clock is never ahead of ours, so it removes nothing that still counts.
  call('PEXPIREAT', kept, whole(math.ceil(expires / 1000)))
end

local function commit_one(commit)
  local befores, firsts = {}, {}
  for i, change in ipairs(commit[3]) do befores[i], firsts[i] = befores_of(change) end
  local refusal = refusal_of(commit, befores)
  if refusal then return refusal end
  for i, change in ipairs(commit[3]) do write(change, befores[i], firsts[i]) end
  for _, refused in ipairs(commit[4]) do refuse(refused) end
  if commit[1] then remember(commit[1]) end
  has_written = true
  return 0
end

-- Each record succeeds or fails by itself. Answers 0 when all did, or what became of each.
local function commit_each(commit)
  local change = commit[3][1]
  local befores, first = befores_of(change)
  if commit[2] and now > commit[2] then return { 'late' } end
  local refusals, failed, good = {}, false, nil
  local seen_at_once = type(change[11]) == 'string'
  for i = 1, #befores do
    local before = befores[i]
    refusals[i] = 0
    if before ~= good then
      if conflict(change, i, before) then
        refusals[i] = { 'conflict', 0, before.version }
      elseif is_illegal(change, before) then
        refusals[i] = { 'illegal', 0, before.state }
      elseif seen_at_once then
        good = before
      end
      if refusals[i] ~= 0 then befores[i], failed = false, true end
    end
  end
  write(change, befores, first)
  return failed and { 'each', refusals } or 0
end

read_lines()
local sequence_before = sequence
for i, commit in ipairs(work) do answers[i] = commit[5] and commit_each(commit) or commit_one(commit) end
end_row()
write_lines()
for kind, of_kind in pairs(held) do
  local left = {}
  for id, version in pairs(of_kind) do
    left[version] = left[version] or {}
    table.insert(left[version], id)
  end
  for version, ids in pairs(left) do put_back(kind, version, ids, now) end
end
carry_out()
if ARGV[3] ~= '' then end_hold(ARGV[3]) end
if has_written then
  local entries = tonumber(known[5] or 0) + sequence - sequence_before
  call('MSET', P .. 'clock', at, P .. 'sequence', whole(sequence), P .. 'entries', whole(entries))
  call('PUBLISH', P .. 'wake', '')
end
return { cmsgpack.pack({ now, answers }), unpack(texts) }
