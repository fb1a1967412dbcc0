-- Greets a server: makes or checks the schema, loads the tables, and finds out whether it is still the
-- same server. ARGV: schema version, identity of the server, a foreign key that was found under our
-- prefix ('' if none), tables packed as {kind, digest, paths, ends}, fingerprints of the migrations packed,
-- 'running' if the caller has opened the store before: then it goes on beside a newer program, unless that
-- has raised the floor, and leaves the tables of that program as they are.
-- Answers {'ok', epoch}, {'newer', version}, {'older', version}, {'changed', number, fingerprint} or
-- {'foreign', key}.
local schema, wanted = P .. 'schema', tonumber(ARGV[1])
local fingerprints = cmsgpack.unpack(ARGV[5])
local kept_as = call('TYPE', schema).ok
if kept_as == 'none' then
  if ARGV[3] ~= '' then return { 'foreign', ARGV[3] } end
  call('HSET', schema, 'program', 'interlock', 'version', 1)
elseif kept_as ~= 'hash' or call('HGET', schema, 'program') ~= 'interlock' then
  return { 'foreign', schema }
end
local version = tonumber(call('HGET', schema, 'version'))
local running = ARGV[6] == 'running'
if version > wanted and not (running and tonumber(call('GET', P .. 'floor') or 0) <= wanted) then
  return { 'newer', whole(version) }
end
for number, fingerprint in ipairs(fingerprints) do
  local kept = call('HGET', P .. 'migrations', number)
  if kept and kept ~= fingerprint then return { 'changed', whole(number), kept } end
  -- The first stores kept no fingerprint of the first.
  if not kept and number == 1 then call('HSET', P .. 'migrations', 1, fingerprint) end
end
if version < wanted then return { 'older', whole(version) } end

-- Records that came to a state before it was an end are found by pruning as well.
local function put_among_the_ended(kind, state)
  for _, id in ipairs(call('ZRANGE', key('state', kind, state), 0, -1)) do
    local line = call('GET', key('line', kind, id))
    if line then call('ZADD', key('end', kind, state), line_of[line].updated_at, id) end
  end
end

for _, wanted_table in ipairs(cmsgpack.unpack(ARGV[4])) do
  local kind, digest = wanted_table[1], wanted_table[2]
  local loaded = call('HGET', P .. 'tables', kind)
  if loaded ~= digest and not (loaded and running) then
    local ends = name_of('ends', kind)
    local known = {}
    for _, state in ipairs(call('SMEMBERS', ends)) do known[state] = true end
    call('DEL', name_of('path', kind), ends)
    for _, path in ipairs(wanted_table[3]) do call('SADD', name_of('path', kind), path) end
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
local present = math.floor(time_now(call('GET', P .. 'clock'), 0) / 1000)
-- Nor is it older than half an hour: so it has grown after keys were restored on a server that runs, if that
-- took longer.
if known[1] ~= ARGV[2] or epoch == 0 or present - epoch >= 1800000 then
  epoch = math.max(epoch + 1, present)
  call('MSET', P .. 'identity', ARGV[2], P .. 'epoch', whole(epoch))
end
return { 'ok', whole(epoch) }
