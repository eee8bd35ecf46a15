-- Marks idempotency keys for attempts that go to the ledger.
--
-- KEYS: the slot, see know.lua, and the marks, all in it: each a set of the attempts under its key that the ledger may have
-- granted. As a string it stands for attempts that nobody can name, and stays: so it is made of too many of them.
-- ARGV: for each mark the attempt, a number, and for how many milliseconds to keep it. Answer: {} for each.

local ATTEMPTS_MAX, KEEP_MS = 16, 691200000

local answers = {}
for place = 2, #KEYS do
    local key, attempt, keep_ms = KEYS[place], ARGV[2 * place - 3], ARGV[2 * place - 2]
    if redis.call('TYPE', key).ok ~= 'string' then
        redis.call('SADD', key, attempt)
        if redis.call('SCARD', key) > ATTEMPTS_MAX then
            redis.call('SET', key, '1')
        end
    end
    redis.call('PEXPIRE', key, keep_ms)
    answers[place - 1] = {}
end
redis.call('PEXPIRE', KEYS[1], KEEP_MS)
return answers
