-- Tells a slot of marks what was before. See is_marked.lua.
--
-- KEYS[1]: the slot, the time from when on it has all marks that were ever made and still count.
-- ARGV: for each who tells it n (there were none before now), u (nobody knows), or m (one is missing). The first two are
-- for a slot that knows nothing. Answer: {} for each.

local MARK_MS, KEEP_MS = 86400000, 691200000

local time = redis.call('TIME')
local all_from = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + MARK_MS)
local answers = {}
for place, before in ipairs(ARGV) do
    if before == 'm' then
        redis.call('SET', KEYS[1], all_from, 'PX', KEEP_MS)
    else
        redis.call('SET', KEYS[1], before == 'n' and '0' or all_from, 'PX', KEEP_MS, 'NX')
    end
    answers[place] = {}
end
return answers
