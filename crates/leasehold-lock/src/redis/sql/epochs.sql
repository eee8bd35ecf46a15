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
-- The replication ids of masters whose successors have asked. One that is cut off and goes on must not get an epoch above theirs.
CREATE TABLE IF NOT EXISTS leasehold_redis_superseded (replid TEXT PRIMARY KEY);
