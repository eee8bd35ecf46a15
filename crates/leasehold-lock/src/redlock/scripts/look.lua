-- look.lua: whether a server may vote, asked when its scripts are not loaded or its state is gone.
--
-- KEYS: node state. ARGV: 1 if every write is on the server's disk before it is answered else 0, number of
--       servers, a new id for a server that has none.
-- Returns {'admitted', id}, {'members', number}, or {'quarantine', id, 'empty' or 'stale', run id}.
--
-- A server that started again without certain persistence may have forgotten what it agreed to, and so may
-- one whose state is gone. It is out until a client has waited and has copied the counters of the others.
-- Persistence is certain only if it was in the run before, too: settings may have been changed in between.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local state = redis.call('HMGET', KEYS[1], 'status', 'run', 'members', 'id', 'durable')
if not state[1] then
  redis.call('HSET', KEYS[1], 'status', 'empty', 'run', run, 'members', ARGV[2], 'id', ARGV[3],
    'durable', ARGV[1])
  return {'quarantine', ARGV[3], 'empty', run}
end
if state[3] ~= ARGV[2] then return {'members', state[3]} end
redis.call('HSET', KEYS[1], 'durable', ARGV[1])
if state[1] == 'admitted' then
  if state[2] == run then return {'admitted', state[4]} end
  if ARGV[1] == '1' and state[5] == '1' then
    redis.call('HSET', KEYS[1], 'run', run)
    return {'admitted', state[4]}
  end
  redis.call('HSET', KEYS[1], 'status', 'stale', 'run', run)
  return {'quarantine', state[4], 'stale', run}
end
redis.call('HSET', KEYS[1], 'run', run)
return {'quarantine', state[4], state[1], run}
