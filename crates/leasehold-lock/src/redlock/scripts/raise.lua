-- raise.lua: second phase of an acquisition: agrees to fences that are higher than all this node has agreed to.
--
-- KEYS: node state, then the locks.
-- ARGV: owner, number of servers, then per lock: the counter's field, the fence proposed.
-- Returns {'agreed'}, {'too-low', counter, ...} with one counter per name, {'lost'} when a lock is not the
--         owner's any more, or {'out'} as in vote.lua.
--
-- Strictly higher: two acquisitions that both succeed share a node, that node's counter only rises, hence
-- their fences differ. With "at least as high" a repeated or late command would let two be equal.
local owner = ARGV[1]
local state = redis.call('HMGET', KEYS[1], 'status', 'members', 'floor')
if state[1] ~= 'admitted' or state[2] ~= ARGV[2] then return {'out'} end
local answer, agreed = {'too-low'}, true
for i = 2, #KEYS do
  local holder = redis.call('GET', KEYS[i])
  if holder ~= owner and not (holder and string.sub(holder, 1, #owner + 1) == owner .. '#') then
    return {'lost'}
  end
  local counter = redis.call('HGET', KEYS[1], ARGV[2 * i - 1]) or state[3]
  answer[i] = counter
  if tonumber(counter) >= tonumber(ARGV[2 * i]) then agreed = false end
end
if not agreed then return answer end
for i = 2, #KEYS do
  redis.call('HSET', KEYS[1], ARGV[2 * i - 1], ARGV[2 * i])
  redis.call('SET', KEYS[i], owner .. '#' .. ARGV[2 * i], 'KEEPTTL')
end
return {'agreed'}
