-- The journal after a cursor. Its ids are <epoch>-<number>: numbers may come back after a fail-over
-- that lost the latest writes, epochs do not, so nothing is ever added before what was handed out.
-- ARGV: cursor, limit. Answers whole rows with at least as many entries as wanted, if there are: the
-- caller leaves out what comes before the cursor and after the limit.
local ROWS = 20
local rows, left, from = {}, tonumber(ARGV[2]), '(' .. ARGV[1]
local epoch, number = string.match(ARGV[1], '(%d+)-(%d+)')
local some_are_gone = call('EXISTS', GONE) == 1

-- How many entries of a row come after the cursor and were not pruned.
local function told_of(row, gone)
  local before = row.epoch == epoch and math.max(tonumber(number) - row.first, 0) or 0
  local told = row.n - before
  for place in string.gmatch(gone, '%d+') do
    if tonumber(place) > before then told = told - 1 end
  end
  return told
end

while left > 0 do
  local found = call('XRANGE', JOURNAL, from, '+', 'COUNT', ROWS)
  for _, entry in ipairs(found) do
    local row = read_row(entry)
    local gone = some_are_gone and call('HGET', GONE, row.cursor) or ''
    rows[#rows + 1] = { row.cursor, row.kind, row.ids, row.n, row.version, row.at, row.note, gone }
    from, left = '(' .. row.cursor, left - told_of(row, gone)
  end
  if #found < ROWS then break end
end
return cmsgpack.pack({ pruned_up_to(), rows })
