-- admit.lua: ends a server's quarantine, with the counters of the others.
--
-- KEYS: node state. ARGV: the server's run id, its id, the floor for counters that are not named, then
--       field, value, field, value, ...
-- Returns 1, or 0 when the server has started again meanwhile. Counters only rise.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local state = redis.call('HMGET', KEYS[1], 'status', 'run', 'id', 'floor')
if run ~= ARGV[1] or state[2] ~= ARGV[1] or state[3] ~= ARGV[2] then return 0 end
if state[1] == 'admitted' then return 1 end
local floor = math.max(tonumber(ARGV[3]), tonumber(state[4] or '0'))
redis.call('HSET', KEYS[1], 'floor', string.format('%.0f', floor))
for i = 4, #ARGV, 2 do
  local known = tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or '0')
  local value = math.max(known, tonumber(ARGV[i + 1]), floor)
  redis.call('HSET', KEYS[1], ARGV[i], string.format('%.0f', value))
end
redis.call('HSET', KEYS[1], 'status', 'admitted')
return 1
