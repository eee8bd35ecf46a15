-- The next epoch of a slot. Result: an epoch that nobody had before; NULL for a server that was replaced.
-- Arguments: the slot; the replication id of the server that asks, and its config epoch, 0 outside of a cluster; the replication id of
-- the master that it was a copy of, and is the successor of, or zeros.
--
-- A master that is cut off does not know that it was replaced. Were it given an epoch, that would be above its successor's. One
-- statement sees the slot's row as whoever had it before has left it. In a cluster a master may have got the slot again, or never
-- have lost it to the copy: then its config epoch is higher. The newest 16 are kept; one that was replaced adds none.
-- On disk before it is answered also where a pooler runs it in a session that never had this connection's settings.
WITH durable AS MATERIALIZED (SELECT set_config('synchronous_commit', 'on', true))
INSERT INTO leasehold_redis_epochs AS known (slot, epoch, replaced)
SELECT $1, 1, CASE WHEN $4::text ~ '^0*$' THEN '{}' ELSE ARRAY[$4 || ' ' || $3::bigint] END FROM durable
ON CONFLICT (slot) DO UPDATE SET (epoch, replaced) = (
    SELECT known.epoch + CASE WHEN is_replaced THEN 0 ELSE 1 END,
        CASE WHEN is_replaced OR excluded.replaced = '{}' THEN known.replaced
            ELSE (others || ($4 || ' ' || greatest(before, $3)))[greatest(cardinality(others) - 14, 1):] END
    FROM (
        SELECT coalesce(bool_or(server = $2::text AND successor >= $3), false) AS is_replaced,
            coalesce(array_agg(entry ORDER BY place) FILTER (WHERE server <> $4), '{}') AS others,
            coalesce(max(successor) FILTER (WHERE server = $4), 0) AS before
        FROM (SELECT entry, place, split_part(entry, ' ', 1) AS server, split_part(entry, ' ', 2)::bigint AS successor
              FROM unnest(known.replaced) WITH ORDINALITY AS all_of_them (entry, place)) AS entries
    ) AS found)
RETURNING CASE WHEN EXISTS (
    SELECT FROM unnest(known.replaced) AS entry
    WHERE split_part(entry, ' ', 1) = $2 AND split_part(entry, ' ', 2)::bigint >= $3
) THEN NULL ELSE epoch END
