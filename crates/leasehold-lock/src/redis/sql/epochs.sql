-- Where the epochs of fences on Redis are counted. Run at every connection; changes nothing the second time.
-- Commits must be on disk before they are answered: an epoch that is forgotten is given out twice.
-- All Redis servers and key prefixes that use this database share the count: an epoch that one of them skips
-- costs nothing, and one that two of them have would give out fences twice.
SET synchronous_commit = on;
-- Until this is committed.
SELECT pg_advisory_xact_lock(7310579420361523041);
CREATE TABLE IF NOT EXISTS leasehold_redis_epochs (
    slot INTEGER PRIMARY KEY CHECK (slot BETWEEN 0 AND 16383),
    epoch BIGINT NOT NULL CHECK (epoch > 0)
);
-- The masters of each slot whose successors have asked: replication id and the successor's config epoch, 0 outside of a cluster.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_attribute
                   WHERE attrelid = 'leasehold_redis_epochs'::regclass AND attname = 'replaced') THEN
        ALTER TABLE leasehold_redis_epochs ADD COLUMN replaced TEXT[] NOT NULL DEFAULT '{}';
    END IF;
END $$;
