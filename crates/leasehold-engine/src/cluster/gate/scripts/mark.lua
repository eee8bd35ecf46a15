-- Marks an idempotency key for an attempt that goes to the ledger.
--
-- KEYS[1]: the marker, a set of the attempts under the key that the ledger may have granted. As a string it stands for attempts
-- that nobody can name, and stays: so it is made of too many of them, and by servers of before there were names.
-- ARGV: the attempt, a number; for how many milliseconds to keep the marker. Answer: nothing.

local ATTEMPTS_MAX = 16

if redis.call('TYPE', KEYS[1]).ok ~= 'string' then
    redis.call('SADD', KEYS[1], ARGV[1])
    if redis.call('SCARD', KEYS[1]) > ATTEMPTS_MAX then
        redis.call('SET', KEYS[1], '1')
    end
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {}
