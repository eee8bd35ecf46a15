-- Notes that a server was replaced: it gets no epoch any more. Argument: its replication id, which it never has again as a master.
INSERT INTO leasehold_redis_superseded (replid) VALUES ($1) ON CONFLICT DO NOTHING
