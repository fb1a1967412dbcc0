-- The store's clock. ARGV: floor.
return whole(time_now(call('GET', P .. 'clock'), ARGV[1]))
