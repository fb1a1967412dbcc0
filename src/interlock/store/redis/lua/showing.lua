-- What other tools may read of a record. Their keys are not ours to trust: whatever is there, the
-- commit stands, so what cannot be written is left as it is.
-- Few kinds are shown, so these functions are made when one is.
local function show(shown, id, created_at, is_new)
  local function text_at(name)
    local text = redis.pcall('GET', name)
    return type(text) == 'string' and text or nil
  end

  -- Where the value of a field begins and ends in a JSON object that we have written. The value is a number,
  -- a time or null, so it ends before a comma or a brace; within texts quotes are escaped, so that the name
  -- of a field, with its quotes and its colon, is found only where the field is.
  local function value_in(text, field)
    local _, before = string.find(text, field, 1, true)
    if not before then return nil end
    local after = string.find(text, '[,}]', before + 1)
    if not after then return nil end
    return before + 1, after - 1
  end

  local function replaced(text, field, value)
    local first, last = value_in(text, field)
    if not first then return text end
    return string.sub(text, 1, first - 1) .. value .. string.sub(text, last + 1)
  end

  local function keeping(text, name, fields)
    local shown_before = #fields > 0 and text_at(name)
    if not shown_before then return text end
    for _, field in ipairs(fields) do
      local first, last = value_in(shown_before, field)
      if first then text = replaced(text, field, string.sub(shown_before, first, last)) end
    end
    return text
  end

  if not shown[2] then
    redis.pcall('DEL', shown[1])
  elseif shown[3] then
    redis.pcall('SET', shown[1], shown[2], 'PX', shown[3])
  else
    redis.pcall('SET', shown[1], is_new and shown[2] or keeping(shown[2], shown[1], shown[7]))
  end
  local text = shown[5] and text_at(shown[5])
  if text then
    for _, field in ipairs(shown[6]) do text = replaced(text, field[1], field[2]) end
    redis.pcall('SET', shown[5], text)
  end
  if shown[4] then
    redis.pcall('ZADD', shown[4], string.format('%.6f', tonumber(created_at) / 1000000), id)
  end
end
