-- renew.lua: gives leases their full length again, each only if it is still its owner's.
--
-- KEYS: the locks. ARGV, per lock: owner, ttl ms.
-- Returns 1 or 0 per lock. A lease that is gone stays gone.
local answer = {}
for i, lock in ipairs(KEYS) do
  local owner, holder = ARGV[2 * i - 1], redis.call('GET', lock)
  if holder and (holder == owner or string.sub(holder, 1, #owner + 1) == owner .. '#') then
    answer[i] = redis.call('PEXPIRE', lock, ARGV[2 * i])
  else
    answer[i] = 0
  end
end
return answer
