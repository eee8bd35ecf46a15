-- Takes back an attempt of which the ledger has said that it did nothing. The marker goes with its last attempt.
--
-- KEYS[1]: the marker, see mark.lua. ARGV: the attempt. Answer: nothing.

if redis.call('TYPE', KEYS[1]).ok == 'set' then
    redis.call('SREM', KEYS[1], ARGV[1])
end
return {}
