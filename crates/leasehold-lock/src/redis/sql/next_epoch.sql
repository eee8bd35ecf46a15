-- The next epoch of a slot. Argument: the slot. Result: an epoch that nobody had before.
-- On disk before it is answered also where a pooler runs it in a session that never had this connection's settings.
WITH durable AS MATERIALIZED (SELECT set_config('synchronous_commit', 'on', true))
INSERT INTO leasehold_redis_epochs AS epochs (slot, epoch)
SELECT $1, 1 FROM durable
ON CONFLICT (slot) DO UPDATE SET epoch = epochs.epoch + 1
RETURNING epoch
