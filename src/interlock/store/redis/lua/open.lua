-- Greets a server: makes or checks the schema, loads the tables, and finds out whether it is still the
-- same server. ARGV: schema version, identity of the server, a foreign key that was found under our
-- prefix ('' if none), tables packed as {kind, digest, paths, ends}.
-- Answers {'ok', epoch}, {'newer', version} or {'foreign', key}.
local schema, wanted = P .. 'schema', tonumber(ARGV[1])
local kept_as = call('TYPE', schema).ok
if kept_as == 'none' then
  if ARGV[3] ~= '' then return { 'foreign', ARGV[3] } end
  call('HSET', schema, 'program', 'interlock', 'version', wanted)
elseif kept_as ~= 'hash' or call('HGET', schema, 'program') ~= 'interlock' then
  return { 'foreign', schema }
elseif tonumber(call('HGET', schema, 'version')) > wanted then
  return { 'newer', call('HGET', schema, 'version') }
end

-- Records that came to a state before it was an end are found by pruning as well.
local function put_among_the_ended(kind, state)
  for _, id in ipairs(call('ZRANGE', key.state[kind] .. state, 0, -1)) do
    local at = call('HGET', key.record[kind] .. id, 'updated_at')
    call('ZADD', key.ended[kind] .. state, at, id)
  end
end

for _, wanted_table in ipairs(cmsgpack.unpack(ARGV[4])) do
  local kind, digest = wanted_table[1], wanted_table[2]
  if call('HGET', P .. 'tables', kind) ~= digest then
    local ends = P .. 'ends:' .. kind
    local known = {}
    for _, state in ipairs(call('SMEMBERS', ends)) do known[state] = true end
    call('DEL', P .. 'table:' .. kind, ends)
    for _, path in ipairs(wanted_table[3]) do call('SADD', P .. 'table:' .. kind, path) end
    for _, state in ipairs(wanted_table[4]) do
      call('SADD', ends, state)
      if not known[state] then put_among_the_ended(kind, state) end
    end
    call('HSET', P .. 'tables', kind, digest)
  end
end

-- Another run of the server, or another server: a restart without fsync and a promoted replica may
-- both have lost the latest writes, counters and this epoch among them. The time of day in
-- milliseconds makes up for that: the lost epoch was the time at which it began (or one more than an
-- earlier one), and that time is past. If it is the clock that went back, the kept epoch counts on.
local known = call('MGET', P .. 'identity', P .. 'epoch')
local epoch = tonumber(known[2] or 0)
if known[1] ~= ARGV[2] or epoch == 0 then
  epoch = math.max(epoch + 1, math.floor(time_now(call('GET', P .. 'clock'), 0) / 1000))
  call('MSET', P .. 'identity', ARGV[2], P .. 'epoch', whole(epoch))
end
return { 'ok', whole(epoch) }
