-- Reads records. ARGV: pairs of kind and id, packed.
local rows, bodies = {}, {}
for i, key in ipairs(cmsgpack.unpack(ARGV[1])) do
  rows[i] = read_row(key[1], key[2], bodies)
end
return { cmsgpack.pack(rows), table.concat(bodies) }
