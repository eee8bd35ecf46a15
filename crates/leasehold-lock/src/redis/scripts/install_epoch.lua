-- install_epoch.lua: begins a new epoch of fences in one cluster slot.
--
-- KEYS: slot state. ARGV: epoch, replication id that the node had when the epoch was asked for.
-- Returns 1 when the epoch is in force, 0 when the node is another one by now or has a later epoch.
local info = redis.call('INFO', 'replication')
if string.match(info, 'master_replid:(%x+)') ~= ARGV[2] then return 0 end
local stored = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0')
if stored >= tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'replid', ARGV[2], 'epoch', ARGV[1], 'count', 0)
return 1
