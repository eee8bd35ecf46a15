-- Takes back attempts of which the ledger has said that they did nothing. A mark goes with its last attempt.
--
-- KEYS: the slot and the marks, see mark.lua. ARGV: the attempt of each mark. Answer: {} for each.

local answers = {}
for place = 2, #KEYS do
    if redis.call('TYPE', KEYS[place]).ok == 'set' then
        redis.call('SREM', KEYS[place], ARGV[place - 1])
    end
    answers[place - 1] = {}
end
return answers
