-- Removes ended records that were last changed long ago, with their journal, and expired requests.
-- ARGV: kind, age in microseconds, limit, floor, states packed, how many entries at most, how many requests at
-- most, where records of the kind are shown (or false), and the walk of who prunes by queue (or false): ages
-- by queue, the age of all others (or false), the place to go on from, how many to look at.
-- Answers how many records, entries and requests went, whether there are more, and where a walk goes on.
local kind, limit, bound = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[6])
local known = call('MGET', P .. 'clock', P .. 'floor', P .. 'entries')
refuse_if_newer(known[2])
local now = time_now(known[1], ARGV[4])
local before = whole(now - tonumber(ARGV[2]))
local records, entries, more = 0, 0, false
local shown = cmsgpack.unpack(ARGV[8])
local newest = { epoch = 0, number = 0 }
local touched, removed, n = {}, {}, 0

local function unlink(name)
  n = n + 1
  removed[n] = name
end

local function forget_entry(row, place)
  local gone = touched[row]
  if not gone then
    gone = { n = 0 }
    for number in string.gmatch(call('HGET', GONE, row.cursor) or '', '%d+') do
      gone[tonumber(number)], gone.n = true, gone.n + 1
    end
    touched[row] = gone
  end
  if gone[place] then return end
  gone[place], gone.n, entries = true, gone.n + 1, entries + 1
  local epoch, number = tonumber(row.epoch), row.first + place
  if epoch > newest.epoch or (epoch == newest.epoch and number > newest.number) then
    newest = { epoch = epoch, number = number }
  end
end

local function forget_journal(id, trail)
  local list = key('history', kind, id)
  local steps = call('LRANGE', list, 0, -1)
  if #steps > 0 then unlink(list) end
  for step in string.gmatch(trail, '[^,]+') do steps[#steps + 1] = step end
  for _, step in ipairs(steps) do
    local row = row_with[string.match(step, '%d+-%d+')]
    local place = row and place_in(row, id)
    if place then forget_entry(row, place) end
  end
end

-- A row goes with the last of its entries; until then the places of those that are gone are kept.
local function forget_rows()
  for row, gone in pairs(touched) do
    if gone.n == row.n then
      call('XDEL', JOURNAL, row.cursor)
      call('HDEL', GONE, row.cursor)
    else
      local places = {}
      for place = 1, row.n do
        if gone[place] then places[#places + 1] = place end
      end
      call('HSET', GONE, row.cursor, table.concat(places, ' '))
    end
  end
  if entries > 0 then
    call('DECRBY', P .. 'entries', entries)
    local epoch, number = string.match(pruned_up_to(), '(%d+)-(%d+)')
    epoch, number = tonumber(epoch), tonumber(number)
    if newest.epoch > epoch or (newest.epoch == epoch and newest.number > number) then
      call('SET', P .. 'pruned', whole(newest.epoch) .. '-' .. whole(newest.number))
    end
  end
end

local function forget(id, state, line)
  local ids, r = { id }, line and line_of[line]
  drop_all(key('end', kind, state), ids)
  if not r or r.state ~= state then return end
  local marks = marks_of[r.marks]
  drop_all(name_of('created', kind), ids)
  drop_all(key('state', kind, state), ids)
  if marks.queue then drop_all(key('queued', kind, marks.queue), ids) end
  if marks.parent then drop_all(key('parent', kind, marks.parent), ids) end
  for _, label in ipairs(marks.labels) do drop_all(key('label', kind, label), ids) end
  if r.ready_at ~= '' then withdraw(kind, ids, r.marks) end
  if r.deadline_at ~= '' then drop_all(name_of('deadline', kind), ids) end
  forget_journal(id, r.trail)
  unlink(key('line', kind, id))
  unlink(key('given', kind, id))
  if shown then
    redis.pcall('DEL', shown[1] .. id .. shown[2])
    if shown[3] then redis.pcall('ZREM', shown[3], id) end
  end
  records = records + 1
end

local function prune_oldest(state)
  local old = call(
    'ZRANGEBYSCORE', key('end', kind, state), '-inf', before, 'LIMIT', 0, limit - records + 1
  )
  for _, id in ipairs(old) do
    if records == limit or entries >= bound then
      more = true
      break
    end
    forget(id, state, call('GET', key('line', kind, id)))
  end
end

local function age_of(line, ages, general)
  local queue = line and marks_of[line_of[line].marks].queue
  return queue and ages[queue] or general
end

-- No index is by queue: looks at the next ended records, and answers the last one unless it was the last of all.
local function prune_by_queue(state, ages, general, after, after_id, within)
  local index = key('end', kind, state)
  local first = after == '' and 0 or standing_before(index, after, after_id, true)
  local all = call('ZCOUNT', index, '-inf', before)
  local found, keys, last = {}, {}, nil
  if first < all then found = call('ZRANGE', index, first, math.min(first + within, all) - 1, 'WITHSCORES') end
  for i = 1, #found, 2 do keys[#keys + 1] = key('line', kind, found[i]) end
  for i, line in ipairs(values_of(keys)) do
    local id, ended, age = found[2 * i - 1], tonumber(found[2 * i]), age_of(line, ages, general)
    if age and ended <= now - age then
      if records == limit or entries >= bound then break end
      forget(id, state, line)
    end
    first, last = first + 1, { whole(ended), id }
  end
  return last and first < all and last or { '', '' }
end

local states, walk, on = cmsgpack.unpack(ARGV[5]), cmsgpack.unpack(ARGV[9]), { '', '' }
if walk then
  on = prune_by_queue(states[1], walk[1], walk[2], walk[3], walk[4], walk[5])
else
  for _, state in ipairs(states) do prune_oldest(state) end
end
carry_out()
forget_rows()

local expired = call('ZRANGEBYSCORE', P .. 'requests', '-inf', whole(now), 'LIMIT', 0, tonumber(ARGV[7]) + 1)
local requests = math.min(#expired, tonumber(ARGV[7]))
for i = 1, requests do
  unlink(P .. 'request:' .. expired[i])
  drop_all(P .. 'requests', { expired[i] })
end
carry_out()
for first = 1, n, STACK do call('DEL', unpack(removed, first, math.min(first + STACK - 1, n))) end
return cmsgpack.pack({ records, entries, requests, more or #expired > requests, on[1], on[2] })
