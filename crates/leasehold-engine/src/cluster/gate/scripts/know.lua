-- Tells a slot of marks what was before, or asks it. See is_marked.lua.
--
-- KEYS[1]: the slot, the time from when on it has all marks that were ever made and still count.
-- ARGV: for each who tells it n (there were none before now), u (nobody knows), m (one is missing), or r and a time (all that
-- were missing are there again, if it still says that time). The first two are for a slot that knows nothing. Answer: {}
-- for each. Who asks has a question mark; answer: {what it says, or -1 if it knows nothing, and the time now}.

local MARK_MS, KEEP_MS = 86400000, 691200000

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all_from = string.format('%.0f', now + MARK_MS)
local answers = {}
for place, before in ipairs(ARGV) do
    answers[place] = {}
    if before == '?' then
        answers[place] = { tonumber(redis.call('GET', KEYS[1]) or -1), now }
    elseif before == 'm' then
        redis.call('SET', KEYS[1], all_from, 'PX', KEEP_MS)
    elseif before == 'n' or before == 'u' then
        redis.call('SET', KEYS[1], before == 'n' and '0' or all_from, 'PX', KEEP_MS, 'NX')
    elseif redis.call('GET', KEYS[1]) == string.sub(before, 2) then
        redis.call('SET', KEYS[1], '0', 'PX', KEEP_MS)
    end
end
return answers
