-- Counts records, a stretch at a time. ARGV: the query packed, up to how many, how many to look at.
-- Answers the number and where to go on ('' at the end).
local query, cap, bound = cmsgpack.unpack(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local filters = filters_of(query)
local keys, number = narrowest(filters, query)
if filters.exact and query[9] == '' then return cmsgpack.pack({ number, { '', '' } }) end
local next_place = walk(keys, query, not filters.exact)
local found, seen = 0, 0
local place, last = next_place(), nil
while place and found < cap and seen < bound do
  if passes(filters, query, place[3]) then found = found + 1 end
  seen, last, place = seen + 1, place, next_place()
end
local on = { '', '' }
if place and last then on = { whole(last[1]), last[2] } end
return cmsgpack.pack({ found, on })
