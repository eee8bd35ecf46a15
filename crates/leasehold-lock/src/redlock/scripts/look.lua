-- look.lua: whether a server may vote, asked when its scripts are not loaded or its state is gone.
--
-- KEYS: node state. ARGV: the server's run id, 1 if every write is on its disk before it is answered else 0,
--       number of servers, a new id for a server that has none.
-- Returns {'admitted', id}, {'members', number}, or {'quarantine', id, 'empty' or 'stale'}.
--
-- A server that started again without certain persistence may have forgotten what it agreed to, and so may
-- one whose state is gone. It is out until a client has waited and has copied the counters of the others.
local state = redis.call('HMGET', KEYS[1], 'status', 'run', 'members', 'id')
if not state[1] then
  redis.call('HSET', KEYS[1], 'status', 'empty', 'run', ARGV[1], 'members', ARGV[3], 'id', ARGV[4])
  return {'quarantine', ARGV[4], 'empty'}
end
if state[3] ~= ARGV[3] then return {'members', state[3]} end
if state[1] == 'admitted' then
  if state[2] == ARGV[1] then return {'admitted', state[4]} end
  if ARGV[2] == '1' then
    redis.call('HSET', KEYS[1], 'run', ARGV[1])
    return {'admitted', state[4]}
  end
  redis.call('HSET', KEYS[1], 'status', 'stale', 'run', ARGV[1])
  return {'quarantine', state[4], 'stale'}
end
redis.call('HSET', KEYS[1], 'run', ARGV[1])
return {'quarantine', state[4], state[1]}
