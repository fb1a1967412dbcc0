-- Begins an epoch that is larger than ARGV[1] and than every earlier one.
local epoch = math.max(tonumber(call('GET', P .. 'epoch') or 0), tonumber(ARGV[1])) + 1
call('SET', P .. 'epoch', whole(epoch))
return whole(epoch)
