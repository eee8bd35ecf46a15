-- The next epoch of a slot. Result: an epoch that nobody had before; NULL for a server that was replaced.
-- Arguments: the slot; the replication id of the server that asks, and its config epoch, 0 outside of a cluster; the replication id of
-- the master that it was a copy of, and is the successor of, or zeros.
--
-- A master that is cut off does not know that it was replaced. Were it given an epoch, that would be above its successor's. One
-- statement sees the slot's row as whoever had it before has left it. In a cluster a master may have got the slot again, or never
-- have lost it to the copy: then its config epoch is higher. The newest 16 are enough: each is of another failover.
-- On disk before it is answered also where a pooler runs it in a session that never had this connection's settings.
WITH durable AS MATERIALIZED (SELECT set_config('synchronous_commit', 'on', true))
INSERT INTO leasehold_redis_epochs AS known (slot, epoch, replaced)
SELECT $1, 1, CASE WHEN $4::text ~ '^0*$' THEN '{}' ELSE ARRAY[$4 || ' ' || $3::bigint] END FROM durable
ON CONFLICT (slot) DO UPDATE SET
    epoch = known.epoch + CASE WHEN EXISTS (
        SELECT FROM unnest(known.replaced) AS entry
        WHERE split_part(entry, ' ', 1) = $2::text AND split_part(entry, ' ', 2)::bigint >= $3
    ) THEN 0 ELSE 1 END,
    replaced = CASE WHEN known.replaced @> excluded.replaced THEN known.replaced
        ELSE (known.replaced || excluded.replaced)[greatest(cardinality(known.replaced) - 14, 1):] END
RETURNING CASE WHEN EXISTS (
    SELECT FROM unnest(known.replaced) AS entry
    WHERE split_part(entry, ' ', 1) = $2 AND split_part(entry, ' ', 2)::bigint >= $3
) THEN NULL ELSE epoch END
