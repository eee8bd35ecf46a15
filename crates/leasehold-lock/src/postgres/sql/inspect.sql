-- Leases that are not over: $1 a name, or null for all names that begin with $2, after $3, at most $4.
SELECT name, owner, fence,
    greatest(extract(epoch FROM now_at - since) * 1000, 0)::bigint,
    ceil(extract(epoch FROM expires_at - now_at) * 1000)::bigint,
    (SELECT count(*) FROM leasehold_locks.waiting AS waiter WHERE waiter.name = lease.name)
FROM leasehold_locks.leases AS lease, (SELECT clock_timestamp() AS now_at) AS clock
WHERE expires_at > now_at
  AND ($1::text IS NULL OR name = $1) AND name >= $2::text AND starts_with(name, $2) AND name > $3::text
ORDER BY name LIMIT $4::bigint
