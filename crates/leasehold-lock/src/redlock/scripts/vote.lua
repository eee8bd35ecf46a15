-- vote.lua: first phase of an acquisition, on one of several independent servers.
--
-- KEYS: node state, then per name: lock, fence.
-- ARGV: owner, ttl ms, number of servers, then one counter's field per name.
-- Returns {'voted', counter, fence or '', ...} with a pair per name: all locks are the owner's on this node;
--         {'held', index of the name, remaining ms}: one is somebody else's, and none was taken here;
--         {'out'}: this node has not been admitted since it may have lost its memory;
--         {'members', number}: it belongs to a set of another size.
--
-- Never loaded onto a server that has not been admitted: a restart empties the script cache, and then the
-- client looks before it votes.
local owner, ttl = ARGV[1], ARGV[2]
local state = redis.call('HMGET', KEYS[1], 'status', 'members', 'floor')
if state[1] ~= 'admitted' then return {'out'} end
if state[2] ~= ARGV[3] then return {'members', state[2]} end
local names = (#KEYS - 1) / 2
for i = 1, names do
  local holder = redis.call('GET', KEYS[2 * i])
  if holder and holder ~= owner then return {'held', i, redis.call('PTTL', KEYS[2 * i])} end
end
local answer = {'voted'}
for i = 1, names do
  local mine = redis.call('GET', KEYS[2 * i]) == owner
  redis.call('SET', KEYS[2 * i], owner, 'PX', ttl)
  answer[2 * i] = redis.call('HGET', KEYS[1], ARGV[3 + i]) or state[3]
  answer[2 * i + 1] = (mine and redis.call('GET', KEYS[2 * i + 1])) or ''
end
return answer
