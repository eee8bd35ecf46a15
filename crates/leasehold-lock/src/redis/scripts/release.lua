-- release.lua: gives names back that are still the owner's, and wakes those who wait.
--
-- KEYS: the locks; in order: lock, queue, heard, lock, queue, heard, ... All in one cluster slot.
-- ARGV: owner, publish command, claim ms or '' when not in order, alive ms, then one channel per name.
-- Returns how many of the names were the owner's.
--
-- In order, the name is handed over at once to the first in line that was heard of lately: the lock is
-- set to that owner for as long as a claim takes, and the owner is told. An owner that only waited leaves
-- the line.
--
-- Publishing is by pcall: a user without rights on channels releases all the same, and whoever waits finds out
-- by looking.
local owner, publish, claim = ARGV[1], ARGV[2], ARGV[3]

-- Nearly all releases are of one name and not in order; they are done here.
if #KEYS == 1 then
  local holder = redis.call('GET', KEYS[1])
  if not holder or (holder ~= owner and string.sub(holder, 1, #owner + 1) ~= owner .. '#') then return 0 end
  redis.call('DEL', KEYS[1])
  redis.pcall(publish, ARGV[5], KEYS[1])
  return 1
end

local in_order = claim ~= ''
local stride = in_order and 3 or 1

local function hand_over(lock, queue, heard, channel)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  while true do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then return false end
    local at = redis.call('HGET', heard, head)
    redis.call('ZREM', queue, head)
    redis.call('HDEL', heard, head)
    if at and now - tonumber(at) < tonumber(ARGV[4]) then
      redis.call('SET', lock, head, 'PX', claim)
      redis.pcall(publish, channel, head)
      return true
    end
  end
end

local released = 0
for i = 0, #KEYS / stride - 1 do
  local lock = KEYS[stride * i + 1]
  local queue, heard = KEYS[stride * i + 2], KEYS[stride * i + 3]
  if in_order then
    redis.call('ZREM', queue, owner)
    redis.call('HDEL', heard, owner)
  end
  local holder = redis.call('GET', lock)
  if holder and (holder == owner or string.sub(holder, 1, #owner + 1) == owner .. '#') then
    redis.call('DEL', lock)
    released = released + 1
    if not (in_order and hand_over(lock, queue, heard, ARGV[5 + i])) then
      redis.pcall(publish, ARGV[5 + i], lock)
    end
  end
end
return released
