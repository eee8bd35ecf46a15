-- Whether a server was replaced by one that has asked for an epoch since. Argument: its replication id. A statement of its own
-- behind next_epoch.sql in one transaction: whoever had the slot's row before has committed by then.
SELECT EXISTS (SELECT FROM leasehold_redis_superseded WHERE replid = $1)
