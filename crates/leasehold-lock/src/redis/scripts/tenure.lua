-- tenure.lua: which tenure of which node a slot's counter is good in. A part of acquire.lua and install_epoch.lua, before them.
--
-- The replication id changes whenever a server starts or is promoted, and in a cluster the config epoch rises
-- whenever a node gets a slot: one that gave a slot away and has it again may have missed what happened to it
-- elsewhere, and was never started again. The epoch rises for all slots of a node, which costs them an epoch each.
local function replication_id(label)
  local info = redis.call('INFO', 'replication')
  local _, label_end = string.find(info, label, 1, true)
  return string.sub(info, label_end + 1, label_end + 40)
end

local function tenure(in_cluster)
  local replid = replication_id('master_replid:')
  -- batch.lua, which is not for clusters, compares with the replication id, too.
  if not in_cluster then return replid end
  return replid .. ' ' .. string.match(redis.call('CLUSTER', 'INFO'), 'cluster_my_epoch:(%d+)')
end
