-- How many members stand before a place, the place itself counting when `included`. Many records can
-- have been created in one microsecond, so among those it is found by halving.
local function standing_before(index, score, id, included)
  local low = call('ZCOUNT', index, '-inf', '(' .. score)
  local high = call('ZCOUNT', index, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local member = call('ZRANGE', index, middle, middle)[1]
    if lower(member, id) or (included and member == id) then low = middle + 1 else high = middle end
  end
  return low
end
