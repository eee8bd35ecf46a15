-- batch.lua: what several callers ask of one server at the same time, each decided for itself.
--
-- ARGV: how many locks to free; the others are taken with a fence. Then the owners of those to free, their channels, and
--       for each of the others the owner and the ttl in ms.
-- KEYS: the mark that somebody waits in line for whatever name. Then the locks to free, their queues, and for each of the
--       others the lock, the guard and the counter of its slot.
-- Returns per ask: for those to free 1 or 0; otherwise the fence when it is granted, and the remaining ms (-1: no end)
--         when somebody else has the lock. Nil for what must be asked alone, because it takes more: an owner that
--         asks again, a new epoch, a line, a key that is no lock, a full server.
--
-- It is the commands that cost something, so what can be asked with one for all is. Only pcall: one ask that fails must
-- not end the script for those behind it. A user without rights on channels releases all the same; whoever waits
-- finds out by looking.
local frees, answers, replid = tonumber(ARGV[1]), {}, nil

local function is_owners(holder, owner)
  return holder == owner or string.sub(holder, 1, #owner + 1) == owner .. '#'
end

local function remaining(lock, holder, owner)
  if type(holder) ~= 'string' or is_owners(holder, owner) then return false end
  local pttl = redis.pcall('PTTL', lock)
  return type(pttl) == 'number' and pttl
end

local function free_all()
  local are_lines = redis.pcall('EXISTS', KEYS[1]) ~= 0
  local holders = redis.pcall('MGET', unpack(KEYS, 2, frees + 1))
  local asks, locks, channels, is_freed = {}, {}, {}, {}
  for ask = 1, frees do
    local lock, owner, holder = KEYS[ask + 1], ARGV[ask + 1], holders[ask]
    if holders.err or are_lines and redis.pcall('ZCARD', KEYS[ask + 1 + frees]) ~= 0 then
      answers[ask] = false
    elseif holder and is_owners(holder, owner) and not is_freed[lock] then
      is_freed[lock] = true
      asks[#asks + 1], locks[#locks + 1], channels[#channels + 1] = ask, lock, ARGV[ask + 1 + frees]
    else
      -- What is gone and what is no lock look the same here.
      answers[ask] = holder and 0
    end
  end
  if #asks == 0 then return end
  local is_done = type(redis.pcall('DEL', unpack(locks))) == 'number'
  for _, ask in ipairs(asks) do answers[ask] = is_done and 1 end
  if not is_done then return end
  -- Nearly always nobody listens. Where that cannot be found out, all are told.
  local heard = redis.pcall('PUBSUB', 'NUMSUB', unpack(channels))
  for at, lock in ipairs(locks) do
    if heard[2 * at] ~= 0 then redis.pcall('PUBLISH', channels[at], lock) end
  end
end

local function fence(lock, holder, is_guarded_by, counter, owner, ttl)
  if holder then return remaining(lock, holder, owner) end
  if not replid then
    local info = redis.pcall('INFO', 'replication')
    if type(info) ~= 'string' then return false end
    local _, label_end = string.find(info, 'master_replid:', 1, true)
    replid = string.sub(info, label_end + 1, label_end + 40)
  end
  if is_guarded_by ~= replid then return false end
  local count = redis.pcall('INCR', counter)
  if type(count) ~= 'number' or count < 4294967296 or count % 4294967296 == 4294967295 then return false end
  local fence = string.format('%.0f', count)
  -- Not over a key that is no lock, which looks like none.
  local set = redis.pcall('SET', lock, owner .. '#' .. fence, 'NX', 'PX', ttl)
  return set and set.ok and fence
end

local function fence_all()
  local key, arg = 2 + 2 * frees, 2 + 2 * frees
  local read, is_asked = {}, {}
  for lock = key, #KEYS, 3 do
    read[#read + 1] = KEYS[lock]
    read[#read + 1] = KEYS[lock + 1]
  end
  local values = redis.pcall('MGET', unpack(read))
  for at = 1, #read, 2 do
    local lock, holder = read[at], values[at]
    -- Somebody before it in this script may have it by now.
    if is_asked[lock] then holder = redis.pcall('GET', lock) end
    is_asked[lock] = true
    answers[#answers + 1] = not values.err and fence(lock, holder, values[at + 1], KEYS[key + 2], ARGV[arg], ARGV[arg + 1])
    key, arg = key + 3, arg + 2
  end
end

if frees > 0 then free_all() end
if #KEYS > 1 + 2 * frees then fence_all() end
return answers
