-- line.lua: who in a line is next. A part of acquire.lua and release.lua, before them.
--
-- A queue has the waiters by their places. `heard` has, of each of them, when it last asked, by the server's clock, and
-- the channel on which its process then listened for its turn, if it did.
local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function leave(queue, heard, waiter)
  redis.call('ZREM', queue, waiter)
  redis.call('HDEL', heard, waiter)
end

-- The first in line; it is told that it is its turn, where `publish` says how. Whoever has not asked lately is dropped.
-- One whose process listened when it last asked, and does not now, has most likely died: it is passed over, and keeps its
-- place in case that only its connection broke. The first of these is the second result.
local function next_in_line(queue, heard, alive, publish, asking)
  local now, place, silent = server_time(), 0, nil
  while true do
    local waiter = redis.call('ZRANGE', queue, place, place)[1]
    if not waiter then return nil, silent end
    local asked_at, channel = string.match(redis.call('HGET', heard, waiter) or '', '^(%d+) ?(.*)$')
    if not asked_at or now - tonumber(asked_at) >= alive then
      leave(queue, heard, waiter)
    elseif not publish or waiter == asking or channel == '' or redis.pcall(publish, channel, waiter) ~= 0 then
      return waiter, silent
    else
      silent = silent or waiter
      place = place + 1
    end
  end
end

