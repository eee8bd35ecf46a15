-- Log entries that a server has not seen: $1 its events, $2 the version of each that it knows, $3 at most so many each.
-- An event without an entry after the known one, and yet not at that version, has lost some: its row is empty.
SELECT known.no, log.version, log.at, log.kind, log.seats, log.pools, log.rules::text, log.subject, log.reason
FROM unnest($1::integer[], $2::bigint[]) AS known (no, version)
JOIN leasehold.events AS event ON event.no = known.no AND event.version <> known.version
LEFT JOIN LATERAL (
    SELECT * FROM leasehold.log WHERE event_no = known.no AND log.version > known.version
    ORDER BY log.version LIMIT $3
) AS log ON true
