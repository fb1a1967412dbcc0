-- Finds records, a stretch at a time. ARGV: the query packed, how many to find, how many to look at.
-- Answers where to go on ('' at the end), and the records.
local query, wanted, bound = cmsgpack.unpack(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local kind, filters = query[1], filters_of(query)
local next_place = walk(narrowest(filters, query), query, true)
local answer, seen = new_answer(), 0
local place, last = next_place(), nil
while place and answer.size < wanted and seen < bound and answer.bytes < MOST_BYTES do
  if passes(filters, query, place[3]) then
    add(answer, place[2], place_of(answer, kind, place[3]), call('GET', key('given', kind, place[2])) or '')
    answer.bytes = answer.bytes + #place[3]
  end
  seen, last, place = seen + 1, place, next_place()
end
local on = { '', '' }
if place and last then on = { whole(last[1]), last[2] } end
return packed(answer, on)
