-- The next epoch of a slot. Argument: the slot. Result: an epoch that nobody had before.
INSERT INTO leasehold_redis_epochs AS epochs (slot, epoch)
VALUES ($1, 1)
ON CONFLICT (slot) DO UPDATE SET epoch = epochs.epoch + 1
RETURNING epoch
