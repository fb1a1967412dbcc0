-- The end of the journal.
local known = call('MGET', P .. 'epoch', P .. 'sequence')
return (known[1] or '0') .. '-' .. (known[2] or '0')
