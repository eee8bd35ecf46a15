-- batch.lua: what several callers ask of one server at the same time, each decided for itself.
--
-- ARGV, three per ask: 'take', 'fence' or 'free'; the owner; the ttl in ms, or for 'free' the channel to tell.
-- KEYS: the mark that somebody waits in line for whatever name. Then per ask: the lock; for 'fence' also the
--       guard and the counter of its slot, for 'free' also its queue.
-- Returns per ask: for 'free' 1 or 0; otherwise the fence, or '' where none was asked for, when it is granted,
--         and the remaining ms (-1: no end) when somebody else has the lock. Nil for what must be asked alone,
--         because it takes more: an owner that asks again, a new epoch, a line, a key that is no lock, a full server.
--
-- Only pcall: one ask that fails must not end the script for those behind it. A user without rights on channels
-- releases all the same; whoever waits finds out by looking.
local answers, key, replid = {}, 2, nil
local are_lines = redis.pcall('EXISTS', KEYS[1]) ~= 0

local function is_owners(holder, owner)
  return holder == owner or string.sub(holder, 1, #owner + 1) == owner .. '#'
end

local function remaining(lock, holder, owner)
  if type(holder) ~= 'string' or is_owners(holder, owner) then return false end
  local pttl = redis.pcall('PTTL', lock)
  return type(pttl) == 'number' and pttl
end

local function take(lock, owner, ttl)
  local set = redis.pcall('SET', lock, owner, 'NX', 'PX', ttl)
  if not set then return remaining(lock, redis.pcall('GET', lock), owner) end
  return set.ok and ''
end

local function fence(lock, guard, counter, owner, ttl)
  local holder = redis.pcall('GET', lock)
  if holder then return remaining(lock, holder, owner) end
  if not replid then
    local info = redis.pcall('INFO', 'replication')
    if type(info) ~= 'string' then return false end
    local _, label_end = string.find(info, 'master_replid:', 1, true)
    replid = string.sub(info, label_end + 1, label_end + 40)
  end
  if redis.pcall('GET', guard) ~= replid then return false end
  local count = redis.pcall('INCR', counter)
  if type(count) ~= 'number' or count < 4294967296 or count % 4294967296 == 4294967295 then return false end
  local fence = string.format('%.0f', count)
  return redis.pcall('SET', lock, owner .. '#' .. fence, 'PX', ttl).ok and fence
end

local function free(lock, queue, owner, channel)
  if are_lines and redis.pcall('ZCARD', queue) ~= 0 then return false end
  local holder = redis.pcall('GET', lock)
  if not holder then return 0 end
  if type(holder) ~= 'string' then return false end
  if not is_owners(holder, owner) then return 0 end
  if type(redis.pcall('DEL', lock)) ~= 'number' then return false end
  redis.pcall('PUBLISH', channel, lock)
  return 1
end

for at = 1, #ARGV, 3 do
  local what, owner, last, answer = ARGV[at], ARGV[at + 1], ARGV[at + 2], nil
  if what == 'free' then
    answer = free(KEYS[key], KEYS[key + 1], owner, last)
    key = key + 1
  elseif what == 'take' then
    answer = take(KEYS[key], owner, last)
  else
    answer = fence(KEYS[key], KEYS[key + 1], KEYS[key + 2], owner, last)
    key = key + 2
  end
  key = key + 1
  answers[#answers + 1] = answer
end
return answers
