-- Reads records. ARGV: pairs of kind and id, packed. Answers also which of them are there.
local found, there = cmsgpack.unpack(ARGV[1]), {}
local keys, n = {}, #found
for i, pair in ipairs(found) do
  keys[i], keys[n + i] = key('line', pair[1], pair[2]), key('given', pair[1], pair[2])
end
local values, answer = values_of(keys), new_answer()
for i, pair in ipairs(found) do
  there[i] = values[i] ~= false
  if values[i] then add(answer, pair[2], place_of(answer, pair[1], values[i]), values[n + i] or '') end
end
return packed(answer, there)
