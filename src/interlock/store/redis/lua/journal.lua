-- Rows of the journal. A row holds entries that say the same about several records: its `ids`, joined by
-- line breaks, have the places that end with the id of the row, one after the other. Rows of earlier
-- versions hold one entry and name its `id`. `gone` keeps for a row which of its entries were pruned.
local GONE = P .. 'gone'

local function read_row(entry)
  local fields, row = entry[2], {}
  for i = 1, #fields, 2 do row[fields[i]] = fields[i + 1] end
  row.cursor, row.ids, row.n = entry[1], row.ids or row.id, tonumber(row.n or 1)
  local epoch, number = string.match(row.cursor, '(%d+)-(%d+)')
  row.epoch, row.first = epoch, tonumber(number) - row.n
  return row
end

-- The cursor of the entry at a place within a row, counted from one.
local function cursor_in(row, place)
  return row.epoch .. '-' .. whole(row.first + place)
end

-- Where a record is in a row, or nil.
local function place_in(row, id)
  if not row.places then
    local places, n = {}, 0
    for name in string.gmatch(row.ids, '[^\n]+') do
      n = n + 1
      places[name] = n
    end
    row.places = places
  end
  return row.places[id]
end

-- The row with an entry at a cursor, or false; asked once for each cursor, because records share them.
local row_with = setmetatable({}, {
  __index = function(rows, cursor)
    local entry = call('XRANGE', JOURNAL, cursor, '+', 'COUNT', 1)[1]
    local row = entry and read_row(entry) or false
    local epoch, number = string.match(cursor, '(%d+)-(%d+)')
    if row and (row.epoch ~= epoch or tonumber(number) <= row.first) then row = false end
    if row then
      row = rawget(rows, row.cursor) or row
      rows[row.cursor] = row
    end
    rows[cursor] = row
    return row
  end,
})

local function pruned_up_to()
  return call('GET', P .. 'pruned') or '0-0'
end
