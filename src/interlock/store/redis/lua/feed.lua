-- The journal after a cursor. Its ids are <epoch>-<number>: numbers may come back after a fail-over
-- that lost the latest writes, epochs do not, so nothing is ever added before what was handed out.
-- ARGV: cursor, limit.
local rows = {}
for i, entry in ipairs(call('XRANGE', P .. 'journal', '(' .. ARGV[1], '+', 'COUNT', ARGV[2])) do
  rows[i] = read_entry(entry)
end
return cmsgpack.pack({ pruned_up_to(), rows })
