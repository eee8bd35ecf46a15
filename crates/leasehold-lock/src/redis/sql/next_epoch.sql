-- The next epoch of a slot. Arguments: space, slot. Result: an epoch that nobody had before.
INSERT INTO leasehold_redis_epochs AS epochs (space, slot, epoch)
VALUES ($1, $2, 1)
ON CONFLICT (space, slot) DO UPDATE SET epoch = epochs.epoch + 1
RETURNING epoch
