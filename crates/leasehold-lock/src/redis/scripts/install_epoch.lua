-- install_epoch.lua: begins a new epoch of fences in one cluster slot. Behind tenure.lua.
--
-- KEYS: guard, counter. ARGV: epoch, the tenure that the node had when the epoch was asked for, the question, in a cluster 0/1.
-- Returns 1 when the epoch is in force, 0 when the question was answered or lost meanwhile, or the node is another one.
--
-- The counter holds whole fences: epoch * 2^32 and the count. The guard names the tenure they are good in.
if redis.call('GET', KEYS[1]) ~= ARGV[3] or tenure(ARGV[4] == '1') ~= ARGV[2] then return 0 end
local stored = math.floor(tonumber(redis.call('GET', KEYS[2]) or '0') / 4294967296)
if stored >= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[2], string.format('%.0f', tonumber(ARGV[1]) * 4294967296))
redis.call('SET', KEYS[1], ARGV[2])
return 1
