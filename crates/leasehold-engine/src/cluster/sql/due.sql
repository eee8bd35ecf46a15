-- Events with holds that are over and not yet ended, at most $1.
SELECT no FROM leasehold.events AS event
WHERE EXISTS (
    SELECT 1 FROM leasehold.holds WHERE event_no = event.no AND live_until <= (SELECT leasehold.now_ms())
)
ORDER BY no LIMIT $1
