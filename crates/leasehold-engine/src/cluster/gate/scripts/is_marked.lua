-- Tells which marks there are. See mark.lua.
--
-- KEYS: the slot, see know.lua, and the marks, all in it. Answer: for each mark {1} if it is there, and if not {0}, or {2} if
-- the slot may have lost it, or {3} if the slot knows nothing.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all_from = redis.call('GET', KEYS[1])
local else_ = not all_from and 3 or now < tonumber(all_from) and 2 or 0
local answers = {}
for place = 2, #KEYS do
    answers[place - 1] = { redis.call('EXISTS', KEYS[place]) == 1 and 1 or else_ }
end
return answers
