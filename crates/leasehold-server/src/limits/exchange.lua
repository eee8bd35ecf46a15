-- Adds what a server let through to what all servers did. A key's remaining life is the time until the bucket is full.
-- KEYS: subjects. ARGV: for each the milliseconds to add, and the longest that one may be away from full.
local levels = {}
for place, key in ipairs(KEYS) do
  local level = math.max(redis.call('PTTL', key), 0)
  level = math.min(level + math.max(tonumber(ARGV[2 * place - 1]), 1), tonumber(ARGV[2 * place]))
  redis.call('SET', key, '', 'PX', level)
  levels[place] = level
end
return levels
