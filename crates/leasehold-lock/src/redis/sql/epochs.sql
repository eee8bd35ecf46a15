-- Where the epochs of fences on Redis are counted. Run at every connection; changes nothing the second time.
-- Commits must be on disk before they are answered: an epoch that is forgotten is given out twice.
SET synchronous_commit = on;
SELECT pg_advisory_lock(7310579420361523041);
CREATE TABLE IF NOT EXISTS leasehold_redis_epochs (
    space TEXT NOT NULL,
    slot INTEGER NOT NULL CHECK (slot BETWEEN 0 AND 16383),
    epoch BIGINT NOT NULL CHECK (epoch > 0),
    PRIMARY KEY (space, slot)
);
SELECT pg_advisory_unlock(7310579420361523041);
