-- The journal of one record. ARGV: kind, id, after which version, limit.
-- Lines "<version> <cursor>" are in the order of the journal, in which versions never go back: the older
-- ones in a list, in which where to begin is found by halving, and the latest in the record's line.
local kind, id, after, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local list = key('history', kind, id)
local low, high = 0, call('LLEN', list)
while low < high do
  local middle = math.floor((low + high) / 2)
  local version = tonumber(string.match(call('LINDEX', list, middle), '%d+'))
  if version <= after then low = middle + 1 else high = middle end
end
local steps = call('LRANGE', list, low, low + limit - 1)
local line = call('GET', key('line', kind, id))
for step in string.gmatch(line and line_of[line].trail or '', '[^,]+') do
  if tonumber(string.match(step, '%d+')) > after then steps[#steps + 1] = step end
end
local rows = {}
for i = 1, math.min(#steps, limit) do
  local row = row_with[string.match(steps[i], '%d+-%d+')]
  local place = row and place_in(row, id)
  if place then
    rows[#rows + 1] = { cursor_in(row, place), kind, id, 1, row.version, row.at, row.note, '' }
  end
end
return cmsgpack.pack({ pruned_up_to(), rows })
