-- Finds records, a stretch at a time. ARGV: the query packed, how many to find, how many to look at.
-- Answers where to go on ('' at the end), and the records.
local query, wanted, bound = cmsgpack.unpack(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local filters = filters_of(query)
local keys = narrowest(filters, query)
local next_place = walk(keys, query)
local rows, bodies, bytes, seen = {}, {}, 0, 0
local place, last = next_place(), nil
while place and #rows < wanted and seen < bound and bytes < 33554432 do
  local row = passes(filters, query, place[2]) and read_row(query[1], place[2], bodies)
  if row then
    rows[#rows + 1] = row
    bytes = bytes + row[8]
  end
  seen, last, place = seen + 1, place, next_place()
end
local on = { '', '' }
if place and last then on = { whole(last[1]), last[2] } end
return { cmsgpack.pack({ on, rows }), table.concat(bodies) }
