-- Removes ended records that were last changed long ago, with their journal, and expired requests.
-- ARGV: kind, age in microseconds, limit, floor, states packed, how many entries at most, how many
-- requests at most, where records of the kind are shown (or false). Answers how many records, entries and requests went, and whether there are more.
local kind, limit, bound = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[6])
local known = call('MGET', P .. 'clock', P .. 'floor')
refuse_if_newer(known[2])
local now = time_now(known[1], ARGV[4])
local before = whole(now - tonumber(ARGV[2]))
local records, entries, more = 0, 0, false
local shown = cmsgpack.unpack(ARGV[8])
local newest = call('GET', P .. 'pruned') or '0-0'

local function later(a, b)
  local ae, an = string.match(a, '(%d+)-(%d+)')
  local be, bn = string.match(b, '(%d+)-(%d+)')
  if tonumber(ae) ~= tonumber(be) then return tonumber(ae) > tonumber(be) end
  return tonumber(an) > tonumber(bn)
end

local function forget_journal(id)
  local list = key.history[kind] .. id
  for _, line in ipairs(call('LRANGE', list, 0, -1)) do
    local cursor = string.match(line, '%d+-%d+')
    entries = entries + call('XDEL', P .. 'journal', cursor)
    if later(cursor, newest) then newest = cursor end
  end
  call('DEL', list)
end

local function forget(id, state)
  local r = call('HMGET', key.record[kind] .. id, 'state', 'marks')
  drop(key.ended[kind] .. state, id)
  if r[1] ~= state then return end
  local marks = marks_of(r[2])
  drop(key.created[kind], id)
  drop(key.state[kind] .. state, id)
  if marks.queue then drop(key.queue[kind] .. marks.queue, id) end
  if marks.parent then drop(key.parent[kind] .. marks.parent, id) end
  for _, label in ipairs(marks.labels) do drop(key.label[kind] .. label, id) end
  withdraw(kind, id, r[2])
  drop(key.due[kind], id)
  forget_journal(id)
  call('DEL', key.record[kind] .. id)
  if shown then
    redis.pcall('DEL', shown[1] .. id .. shown[2])
    if shown[3] then redis.pcall('ZREM', shown[3], id) end
  end
  records = records + 1
end

for _, state in ipairs(cmsgpack.unpack(ARGV[5])) do
  local ended = key.ended[kind] .. state
  for _, id in ipairs(call('ZRANGEBYSCORE', ended, '-inf', before, 'LIMIT', 0, limit - records + 1)) do
    if records == limit or entries >= bound then
      more = true
      break
    end
    forget(id, state)
  end
end
carry_out()
if entries > 0 then call('SET', P .. 'pruned', newest) end

local expired = call('ZRANGEBYSCORE', P .. 'requests', '-inf', whole(now), 'LIMIT', 0, tonumber(ARGV[7]) + 1)
local requests = math.min(#expired, tonumber(ARGV[7]))
for i = 1, requests do
  call('DEL', P .. 'request:' .. expired[i])
  drop(P .. 'requests', expired[i])
end
carry_out()
return cmsgpack.pack({ records, entries, requests, more or #expired > requests })
