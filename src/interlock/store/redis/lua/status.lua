-- What is there. ARGV: pairs of kind and states, packed.
local numbers = {}
for i, pair in ipairs(cmsgpack.unpack(ARGV[1])) do
  local of_kind = {}
  for s, state in ipairs(pair[2]) do of_kind[s] = call('ZCARD', key('state', pair[1], state)) end
  numbers[i] = of_kind
end
local oldest = call('XRANGE', JOURNAL, '-', '+', 'COUNT', 1)[1]
return cmsgpack.pack({
  tonumber(call('HGET', P .. 'schema', 'version') or 0),
  numbers,
  tonumber(call('GET', P .. 'entries') or 0),
  oldest and read_row(oldest).at or '',
  call('ZCARD', P .. 'requests'),
})
