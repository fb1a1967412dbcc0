-- Walking through records in the order of their creation, by the index that leaves fewest to look at.
--
-- A query is {kind, states, parent, queue, labels, since, until, newest first, after time, after id};
-- what does not filter is '' or empty, or false where '' would be an answer. A walk looks at a bounded
-- number of records and then says where it stands, so that the server is never held up for long.
local WINDOW, WINDOW_OF_LINES = 100, 20

local function counted(index, query)
  local from = query[6] == '' and '-inf' or query[6]
  local to = query[7] == '' and '+inf' or '(' .. query[7]
  return call('ZCOUNT', index, from, to)
end

-- Each filter is an index, or several that have nothing in common. They are `exact` when a record of the
-- narrowest one meets the query, so that it need not be looked at.
local function filters_of(query)
  local kind, filters = query[1], {}
  if #query[2] > 0 then
    local keys = {}
    for i, state in ipairs(query[2]) do keys[i] = key('state', kind, state) end
    filters[1] = keys
  end
  if query[3] then filters[#filters + 1] = { key('parent', kind, query[3]) } end
  if query[4] then filters[#filters + 1] = { key('queued', kind, query[4]) } end
  for _, label in ipairs(query[5]) do filters[#filters + 1] = { key('label', kind, label) } end
  filters.exact = #filters <= 1
  if #filters == 0 then filters[1] = { name_of('created', kind) } end
  return filters
end

local function narrowest(filters, query)
  local best, fewest
  for _, keys in ipairs(filters) do
    local number = 0
    for _, index in ipairs(keys) do number = number + counted(index, query) end
    if not fewest or number < fewest then best, fewest = keys, number end
  end
  return best, fewest
end

local function source_of(index, query, lines)
  local from = query[6] == '' and 0 or call('ZCOUNT', index, '-inf', '(' .. query[6])
  local to = query[7] == '' and call('ZCARD', index) or call('ZCOUNT', index, '-inf', '(' .. query[7])
  if query[9] ~= '' then
    if query[8] then
      to = math.min(to, standing_before(index, query[9], query[10], false))
    else
      from = math.max(from, standing_before(index, query[9], query[10], true))
    end
  end
  return { index = index, from = from, to = to, window = {}, at = 1, lines = lines }
end

-- The next members of one index as {score, id, line if it is wanted}, in the order of the walk.
local function window_of(source, query)
  local newest_first, lines = query[8], begin_of('line', query[1])
  local size = source.lines and WINDOW_OF_LINES or WINDOW
  local first, last = source.from, math.min(source.from + size, source.to) - 1
  if newest_first then first, last = math.max(source.to - size, source.from), source.to - 1 end
  if newest_first then source.to = first else source.from = last + 1 end
  local found, window, keys = call('ZRANGE', source.index, first, last, 'WITHSCORES'), {}, {}
  local n = #found / 2
  for i = 1, n do
    local at = newest_first and n + 1 - i or i
    window[at] = { tonumber(found[2 * i]), found[2 * i - 1] }
    keys[at] = lines .. found[2 * i - 1]
  end
  if source.lines then
    for i, line in ipairs(values_of(keys)) do window[i][3] = line end
  end
  return window
end

-- The next member of one index, or nil at its end. It stays until it is taken.
local function head_of(source, query)
  if source.at > #source.window then
    if source.from >= source.to then return nil end
    source.window, source.at = window_of(source, query), 1
  end
  return source.window[source.at]
end

local function comes_first(a, b, newest_first)
  if a[1] ~= b[1] then return (a[1] < b[1]) ~= newest_first end
  return lower(a[2], b[2]) ~= newest_first
end

local function walk(keys, query, lines)
  local sources, newest_first = {}, query[8]
  for i, index in ipairs(keys) do sources[i] = source_of(index, query, lines) end
  return function()
    local best, head
    for _, source in ipairs(sources) do
      local candidate = head_of(source, query)
      if candidate and (not head or comes_first(candidate, head, newest_first)) then
        best, head = source, candidate
      end
    end
    if best then best.at = best.at + 1 end
    return head
  end
end

local function has_all(labels, wanted)
  local has = {}
  for _, label in ipairs(labels) do has[label] = true end
  for _, label in ipairs(wanted) do
    if not has[label] then return false end
  end
  return true
end

local function one_of(states, state)
  if #states == 0 then return true end
  for _, wanted in ipairs(states) do
    if wanted == state then return true end
  end
  return false
end

-- Whether a record of the walked index meets the other filters too.
local function passes(filters, query, line)
  if filters.exact then return line ~= false end
  if not line then return false end
  local r = line_of[line]
  local marks = marks_of[r.marks]
  return one_of(query[2], r.state)
    and (not query[3] or query[3] == marks.parent)
    and (not query[4] or query[4] == marks.queue)
    and has_all(marks.labels, query[5])
end
