-- Entries of the journal for the reply.
local function read_entry(entry)
  local fields = entry[2]
  local found = {}
  for i = 1, #fields, 2 do found[fields[i]] = fields[i + 1] end
  return { entry[1], found.kind, found.id, found.version, found.at, found.note }
end

local function pruned_up_to()
  return call('GET', P .. 'pruned') or '0-0'
end
