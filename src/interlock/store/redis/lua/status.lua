-- What is there. ARGV: pairs of kind and states, packed.
local numbers = {}
for i, pair in ipairs(cmsgpack.unpack(ARGV[1])) do
  local of_kind = {}
  for s, state in ipairs(pair[2]) do of_kind[s] = call('ZCARD', key.state[pair[1]] .. state) end
  numbers[i] = of_kind
end
local oldest = call('XRANGE', P .. 'journal', '-', '+', 'COUNT', 1)[1]
return cmsgpack.pack({
  tonumber(call('HGET', P .. 'schema', 'version') or 0),
  numbers,
  call('XLEN', P .. 'journal'),
  oldest and read_entry(oldest)[5] or '',
  call('ZCARD', P .. 'requests'),
})
