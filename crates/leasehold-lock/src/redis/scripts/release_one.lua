-- release_one.lua: gives one name back that nobody waits for in line, as nearly all releases do. It stands before what the
-- others need, so that these do not pay for it; release.lua, the last part, has what KEYS and ARGV are.
local owner, publish, claim = ARGV[1], ARGV[2], ARGV[3]
local stride = claim == '' and 1 or 3

if #KEYS == stride and (stride == 1 or redis.call('ZCARD', KEYS[2]) == 0) then
  local holder = redis.call('GET', KEYS[1])
  if not holder or (holder ~= owner and string.sub(holder, 1, #owner + 1) ~= owner .. '#') then return 0 end
  redis.call('DEL', KEYS[1])
  redis.pcall(publish, ARGV[5], KEYS[1])
  return 1
end

