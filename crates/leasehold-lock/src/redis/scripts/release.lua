-- release.lua: gives names back that are still the owner's, and wakes those who wait. release_one.lua stands before it,
-- and where there are lines, between the two, line.lua.
--
-- KEYS: the locks; where there are lines: lock, queue, heard, lock, queue, heard, ... All in one cluster slot.
-- ARGV: owner, publish command, claim ms or '' where there are no lines, alive ms, then one channel per name.
-- Returns how many of the names were the owner's.
--
-- A name is handed over at once to the next in line, however the owner had asked for it: the lock is set to that
-- waiter for as long as a claim takes, and the waiter is told. An owner that only waited leaves the line.
--
-- Publishing is by pcall: a user without rights on channels releases all the same, and whoever waits finds out
-- by looking.
local function hand_over(lock, queue, heard)
  local first, silent = next_in_line(queue, heard, tonumber(ARGV[4]), publish)
  first = first or silent
  if not first then return false end
  redis.call('SET', lock, first, 'PX', claim)
  leave(queue, heard, first)
  return true
end

local released = 0
for i = 0, #KEYS / stride - 1 do
  local lock = KEYS[stride * i + 1]
  local queue, heard = KEYS[stride * i + 2], KEYS[stride * i + 3]
  local is_line = stride == 3 and redis.call('ZCARD', queue) > 0
  if is_line then leave(queue, heard, owner) end
  local holder = redis.call('GET', lock)
  if holder and (holder == owner or string.sub(holder, 1, #owner + 1) == owner .. '#') then
    redis.call('DEL', lock)
    released = released + 1
    if not (is_line and hand_over(lock, queue, heard)) then
      redis.pcall(publish, ARGV[5 + i], lock)
    end
  end
end
return released
