-- vote.lua: first phase of an acquisition, on one of several independent servers.
--
-- KEYS: node state, what tells that this request was called off, then the locks.
-- ARGV: owner, ttl ms, number of servers, then one counter's field per lock.
-- Returns {'voted', counter, fence or '', ...} with a pair per name: all locks are the owner's on this node;
--         {'held', index of the name, remaining ms}: one is somebody else's, and none was taken here;
--         {'lost'}: it comes too late, after the release that called it off;
--         {'out'}: this node has not been admitted since it may have lost its memory;
--         {'members', number}: it belongs to a set of another size.
--
-- Never loaded onto a server that has not been admitted: a restart empties the script cache, and then the
-- client looks before it votes. The lock's value is the owner, and with a fence the owner, '#' and the fence.
local owner, ttl = ARGV[1], ARGV[2]
local state = redis.call('HMGET', KEYS[1], 'status', 'members', 'floor')
if state[1] ~= 'admitted' then return {'out'} end
if state[2] ~= ARGV[3] then return {'members', state[2]} end
if redis.call('EXISTS', KEYS[2]) == 1 then return {'lost'} end
local mine = {}
for i = 3, #KEYS do
  local holder = redis.call('GET', KEYS[i])
  if holder == owner or (holder and string.sub(holder, 1, #owner + 1) == owner .. '#') then
    mine[i] = holder
  elseif holder then
    return {'held', i - 2, redis.call('PTTL', KEYS[i])}
  end
end
local answer = {'voted'}
for i = 3, #KEYS do
  redis.call('SET', KEYS[i], mine[i] or owner, 'PX', ttl)
  answer[2 * i - 4] = redis.call('HGET', KEYS[1], ARGV[1 + i]) or state[3]
  answer[2 * i - 3] = (mine[i] and string.match(mine[i], '#(%d+)$')) or ''
end
return answer
