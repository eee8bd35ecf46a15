-- release.lua: gives names back that are still the owner's, and wakes those who wait.
--
-- KEYS per name, all in one cluster slot: lock; or, with four keys per name: lock, fence, queue, heard.
-- ARGV: owner, publish command, keys per name (1 or 4), in order 0/1, claim ms, alive ms, then one channel
--       per name.
-- Returns how many of the names were the owner's.
--
-- In order, the name is handed over at once to the first in line that was heard of lately: the lock is
-- set to that owner for as long as a claim takes, and the owner is told. An owner that only waited leaves
-- the line.
local owner, publish, stride, in_order = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local FIRST_CHANNEL = 7

local function hand_over(lock, queue, heard, channel)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  while true do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then return false end
    local at = redis.call('HGET', heard, head)
    redis.call('ZREM', queue, head)
    redis.call('HDEL', heard, head)
    if at and now - tonumber(at) < tonumber(ARGV[6]) then
      redis.call('SET', lock, head, 'PX', ARGV[5])
      redis.call(publish, channel, head)
      return true
    end
  end
end

local released = 0
for i = 0, #KEYS / stride - 1 do
  local lock, channel = KEYS[stride * i + 1], ARGV[FIRST_CHANNEL + i]
  local queue, heard = KEYS[stride * i + 3], KEYS[stride * i + 4]
  if in_order then
    redis.call('ZREM', queue, owner)
    redis.call('HDEL', heard, owner)
  end
  if redis.call('GET', lock) == owner then
    redis.call('DEL', lock)
    if stride == 4 then redis.call('DEL', KEYS[stride * i + 2]) end
    released = released + 1
    if not (in_order and hand_over(lock, queue, heard, channel)) then
      redis.call(publish, channel, lock)
    end
  end
end
return released
