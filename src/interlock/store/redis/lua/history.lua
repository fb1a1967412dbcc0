-- The journal of one record. ARGV: kind, id, after which version, limit.
-- The list holds "<version> <cursor>" in the order of the journal, in which versions never go back,
-- so where to begin is found by halving.
local list, after = key.history[ARGV[1]] .. ARGV[2], tonumber(ARGV[3])
local low, high = 0, call('LLEN', list)
while low < high do
  local middle = math.floor((low + high) / 2)
  local version = tonumber(string.match(call('LINDEX', list, middle), '%d+'))
  if version <= after then low = middle + 1 else high = middle end
end
local rows = {}
for _, line in ipairs(call('LRANGE', list, low, low + tonumber(ARGV[4]) - 1)) do
  local cursor = string.match(line, '%d+-%d+')
  local entry = call('XRANGE', P .. 'journal', cursor, cursor)[1]
  if entry then rows[#rows + 1] = read_entry(entry) end
end
return cmsgpack.pack({ pruned_up_to(), rows })
