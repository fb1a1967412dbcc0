-- incompatible
-- Records become lines: one text for what changes, one for what was given (nothing, up to now). Sets that
-- programs of earlier versions take from get other names, so that such a program finds nothing, even one that
-- does not know that it must not write. Done in steps: a step that leaves some to do answers true.
-- The lists of steps (`history:`) and the journal stay as they are; both forms of rows are read.
local STEP = 500
local MIGRATING = P .. 'migrating'

local function begin()
  for _, kind in ipairs(call('HKEYS', P .. 'tables')) do
    for old, new in pairs({ ['table'] = 'path', due = 'deadline', delayed = 'later' }) do
      local name = P .. old .. ':' .. kind
      if call('EXISTS', name) == 1 then call('RENAME', name, P .. new .. ':' .. kind) end
    end
    for _, state in ipairs(call('SMEMBERS', P .. 'ends:' .. kind)) do
      local name = P .. 'ended:' .. kind .. ':' .. state
      if call('EXISTS', name) == 1 then call('RENAME', name, P .. 'end:' .. kind .. ':' .. state) end
    end
    call('HSET', MIGRATING, kind, 0)
  end
  for _, number in ipairs(call('ZRANGE', P .. 'held', 0, -1)) do call('DEL', P .. 'hold:' .. number) end
  call('DEL', P .. 'held', P .. 'handlers')
  call('SET', P .. 'entries', call('XLEN', P .. 'journal'))
end

-- `queue:` was the set of the records of a queue by creation and is the set of its lanes. A lane ended with as
-- many separators as its handler had for a number; what is ready is put into its lane anew.
local cleaned = {}
local function clean(kind, queue)
  local of_kind = ':' .. kind .. ':'
  if cleaned[of_kind .. queue] then return end
  cleaned[of_kind .. queue] = true
  local lanes = P .. 'lanes' .. of_kind .. queue
  for _, lane in ipairs(call('SMEMBERS', lanes)) do call('DEL', P .. 'ready' .. of_kind .. lane) end
  call('DEL', lanes)
  local by_creation = P .. 'queue' .. of_kind .. queue
  if call('TYPE', by_creation).ok == 'zset' then call('RENAME', by_creation, P .. 'queued' .. of_kind .. queue) end
end

local function wait(kind, id, marks, ready_at, now)
  if tonumber(ready_at) > now then return call('ZADD', P .. 'later:' .. kind, ready_at, id) end
  local parts = { marks.queue, unpack(marks.labels or {}) }
  if marks.handler then parts[#parts + 1] = '\29' .. marks.handler end
  local lane = table.concat(parts, '\31')
  local rank = string.format('%d', tonumber(ready_at) - 60000000 * (marks.priority or 0))
  call('ZADD', P .. 'lane:' .. kind .. ':' .. lane, rank, id)
  call('SADD', P .. 'queue:' .. kind .. ':' .. marks.queue, lane)
  call('ZREM', P .. 'later:' .. kind, id)
end

local function move(kind, id, now)
  local name = P .. 'record:' .. kind .. ':' .. id
  local r = call(
    'HMGET', name, 'version', 'state', 'created_at', 'updated_at', 'ready_at', 'deadline_at', 'marks', 'body'
  )
  if not r[1] then return end
  local ready_at, deadline_at, marks = r[5] or '', r[6] or '', cjson.decode(r[7])
  call('SET', P .. 'line:' .. kind .. ':' .. id, table.concat(
    { r[1], r[2], r[3], r[4], ready_at, deadline_at, r[7], '', #r[8], r[8] }, '\n'
  ))
  if marks.queue then clean(kind, marks.queue) end
  if ready_at ~= '' then wait(kind, id, marks, ready_at, now) end
  if deadline_at ~= '' then call('ZADD', P .. 'deadline:' .. kind, deadline_at, id) end
  call('DEL', name)
end

local function step()
  local parts = call('TIME')
  local now = tonumber(parts[1]) * 1000000 + tonumber(parts[2])
  for _, kind in ipairs(call('HKEYS', P .. 'tables')) do
    local done = tonumber(call('HGET', MIGRATING, kind))
    local ids = call('ZRANGE', P .. 'created:' .. kind, done, done + STEP - 1)
    for _, id in ipairs(ids) do move(kind, id, now) end
    if #ids > 0 then
      call('HSET', MIGRATING, kind, done + #ids)
      return true
    end
  end
  call('DEL', MIGRATING)
  return false
end

if call('EXISTS', MIGRATING) == 0 then
  begin()
  return call('HLEN', P .. 'tables') > 0
end
return step()
