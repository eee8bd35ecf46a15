-- acquire.lua: takes several names for one owner, all or none; with fences and a queue where asked for.
--
-- KEYS, five per name, all in one cluster slot: slot state, lock, fence, queue, heard.
-- ARGV: owner, ttl ms, fenced 0/1, in order 0/1, publish command, claim ms, alive ms, queue length max,
--       then one channel per name.
-- Returns {'granted', fence, fence, ...}, {'busy', index of the name, remaining ms, ahead or -1},
--         or {'epoch', index of the name, replication id}: the node has no epoch for what it is now.
--
-- An owner that asks again gets the lease it has, at full length, with the fences it has. A name that was
-- handed over to the owner by a release is such a lease.
local owner, ttl, fenced, in_order = ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4] == '1'
local publish, claim, alive, queue_max = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local FIRST_CHANNEL = 9
local names = #KEYS / 5

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The first in line that was heard of lately. Whoever was not is dropped from the line.
local function live_head(queue, heard, now)
  while true do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then return nil end
    local at = redis.call('HGET', heard, head)
    if at and now - tonumber(at) < alive then return head end
    redis.call('ZREM', queue, head)
    redis.call('HDEL', heard, head)
  end
end

-- Puts the owner in line, or shows that it is still there. Returns how many are ahead.
local function stand_in_line(queue, heard, now)
  if not redis.call('ZSCORE', queue, owner) then
    if redis.call('ZCARD', queue) >= queue_max then return -1 end
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    redis.call('ZADD', queue, (tonumber(last[2]) or 0) + 1, owner)
  end
  redis.call('HSET', heard, owner, now)
  redis.call('PEXPIRE', queue, 86400000)
  redis.call('PEXPIRE', heard, 86400000)
  return redis.call('ZRANK', queue, owner)
end

for i = 0, names - 1 do
  local lock, queue, heard = KEYS[5 * i + 2], KEYS[5 * i + 4], KEYS[5 * i + 5]
  local holder = redis.call('GET', lock)
  if holder ~= owner then
    local ahead = -1
    if in_order then
      local now = now_ms()
      local head = live_head(queue, heard, now)
      if not holder and head and head ~= owner then
        redis.call('SET', lock, head, 'PX', claim)
        redis.call('ZREM', queue, head)
        redis.call('HDEL', heard, head)
        redis.call(publish, ARGV[FIRST_CHANNEL + i], head)
        holder = head
      end
      if holder then ahead = stand_in_line(queue, heard, now) end
    end
    if holder then return {'busy', i + 1, redis.call('PTTL', lock), ahead} end
  end
end

-- A node that was promoted, restarted or emptied since its epoch was given out may have forgotten fences:
-- its replication id is another one, or its state is gone.
local epochs = {}
if fenced then
  local info = redis.call('INFO', 'replication')
  local _, label_end = string.find(info, 'master_replid:', 1, true)
  local replid = string.sub(info, label_end + 1, label_end + 40)
  for i = 0, names - 1 do
    local state = redis.call('HMGET', KEYS[5 * i + 1], 'replid', 'epoch', 'count')
    if state[1] ~= replid or tonumber(state[3]) >= 4294967295 then return {'epoch', i + 1, replid} end
    epochs[i] = tonumber(state[2])
  end
end

local answer = {'granted'}
for i = 0, names - 1 do
  local lock, fence_key = KEYS[5 * i + 2], KEYS[5 * i + 3]
  local mine = redis.call('GET', lock) == owner
  redis.call('SET', lock, owner, 'PX', ttl)
  if in_order then
    redis.call('ZREM', KEYS[5 * i + 4], owner)
    redis.call('HDEL', KEYS[5 * i + 5], owner)
  end
  if fenced then
    local fence = mine and redis.call('GET', fence_key)
    if not fence then
      fence = string.format('%.0f', epochs[i] * 4294967296 + redis.call('HINCRBY', KEYS[5 * i + 1], 'count', 1))
    end
    redis.call('SET', fence_key, fence, 'PX', ttl)
    answer[i + 2] = fence
  end
end
return answer
