-- renew.lua: gives leases their full length again, each only if it is still its owner's.
--
-- KEYS: the locks; with fences: lock, fence, lock, fence, ...
-- ARGV: keys per name (1 or 2), then per name: owner, ttl ms.
-- Returns 1 or 0 per name. A lease that is gone stays gone.
local stride = tonumber(ARGV[1])
local answer = {}
for i = 0, #KEYS / stride - 1 do
  local lock, owner, ttl = KEYS[stride * i + 1], ARGV[2 + 2 * i], ARGV[3 + 2 * i]
  if redis.call('GET', lock) == owner then
    redis.call('PEXPIRE', lock, ttl)
    if stride == 2 then redis.call('PEXPIRE', KEYS[stride * i + 2], ttl) end
    answer[i + 1] = 1
  else
    answer[i + 1] = 0
  end
end
return answer
