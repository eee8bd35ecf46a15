-- acquire.lua: takes several names for one owner, all or none; with fences and a queue where asked for.
--
-- KEYS, five per name, all in one cluster slot: lock, guard, counter, queue, heard. Then, in order and not in a
--       cluster, a mark that somebody waits in line.
-- ARGV: owner, ttl ms, fenced (0 no, 1 yes, 2 in a cluster), in order 0/1, and in order: publish command, the command that counts who listens,
--       claim ms, alive ms, queue length max, the channel on which the owner listens for its turn.
-- Returns {'granted', fence, fence, ...}, {'busy', index of the name, remaining ms, ahead or -1},
--         or {'epoch', index of the name, tenure, question, predecessor}: the slot has no epoch for what its node is now.
--         The question is in the guard until it is answered, so that an answer which comes after another one, or after all
--         was lost, is none. The predecessor is the replication id of the master that the node was a copy of, or zeros.
--
-- The lock's value is the owner, and with a fence the owner, '#' and the fence. An owner that asks again gets
-- the lease it has, at full length, with the fences it has. A name that was handed over to the owner by a
-- release is such a lease.
local owner, ttl, fenced, in_order = ARGV[1], ARGV[2], ARGV[3] ~= '0', ARGV[4] == '1'
local names = math.floor(#KEYS / 5)
local mine = {}

local function busy(i, ahead)
  return {'busy', i + 1, redis.call('PTTL', KEYS[5 * i + 1]), ahead}
end

-- In line: hands the name over to whoever is next, and puts the owner in line. Returns how many are ahead,
-- or nil when it is the owner's turn.
local function wait_in_line(i, holder)
  local publish, count, claim, alive = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
  local queue_max, channel = tonumber(ARGV[9]), ARGV[10]
  local lock, queue, heard = KEYS[5 * i + 1], KEYS[5 * i + 4], KEYS[5 * i + 5]
  local first = next_in_line(queue, heard, alive, not holder and publish, owner)
  if not holder then
    if not first or first == owner then return nil end
    redis.call('SET', lock, first, 'PX', claim)
    leave(queue, heard, first)
  end
  if not redis.call('ZSCORE', queue, owner) then
    if redis.call('ZCARD', queue) >= queue_max then return -1 end
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    redis.call('ZADD', queue, (tonumber(last[2]) or 0) + 1, owner)
  end
  local listening = redis.pcall('PUBSUB', count, channel)[2] or 0
  redis.call('HSET', heard, owner, server_time() .. ' ' .. (listening > 0 and channel or ''))
  if KEYS[5 * names + 1] then redis.call('SET', KEYS[5 * names + 1], '', 'PX', alive) end
  redis.call('PEXPIRE', queue, 86400000)
  redis.call('PEXPIRE', heard, 86400000)
  return redis.call('ZRANK', queue, owner)
end

for i = 0, names - 1 do
  local holder = redis.call('GET', KEYS[5 * i + 1])
  if holder and (holder == owner or string.sub(holder, 1, #owner + 1) == owner .. '#') then
    mine[i] = holder
  elseif in_order then
    local ahead = wait_in_line(i, holder)
    if ahead then return busy(i, ahead) end
  elseif holder then
    return busy(i, -1)
  end
end

local function needs_epoch(i, now)
  local guard = KEYS[5 * i + 2]
  local question, begins = redis.call('GET', guard), 'asked ' .. now .. ' '
  if not question or string.sub(question, 1, #begins) ~= begins then
    local time = redis.call('TIME')
    question = begins .. time[1] .. '.' .. time[2] .. ' ' .. owner
    redis.call('SET', guard, question)
  end
  return {'epoch', i + 1, now, question, replication_id('master_replid2:')}
end

local answer = {'granted'}
if fenced then
  -- A node that was promoted, restarted or emptied since its epoch was given out, or got the slot since, may have
  -- forgotten fences: its tenure is another one, or the guard is gone, or the counter.
  local now = tenure(ARGV[3] == '2')
  for i = 0, names - 1 do
    local fence = mine[i] and string.match(mine[i], '#(%d+)$')
    if not fence then
      if redis.call('GET', KEYS[5 * i + 2]) ~= now then return needs_epoch(i, now) end
      local count = redis.call('INCR', KEYS[5 * i + 3])
      if count < 4294967296 or count % 4294967296 == 4294967295 then return needs_epoch(i, now) end
      fence = string.format('%.0f', count)
    end
    answer[i + 2] = fence
  end
end
for i = 0, names - 1 do
  local value = owner
  if fenced then value = owner .. '#' .. answer[i + 2] end
  redis.call('SET', KEYS[5 * i + 1], value, 'PX', ttl)
  if in_order then leave(KEYS[5 * i + 4], KEYS[5 * i + 5], owner) end
end
return answer
