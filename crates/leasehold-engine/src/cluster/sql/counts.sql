-- How much there is: events, seats, holds that keep something, sales that stand, log entries.
SELECT
    (SELECT count(*) FROM leasehold.events),
    (SELECT coalesce(sum(seats_free + seats_held + seats_sold + seats_blocked), 0)::bigint FROM leasehold.events),
    (SELECT count(*) FROM leasehold.holds WHERE state <= 1),
    (SELECT count(*) FROM leasehold.bookings WHERE NOT cancelled),
    (SELECT count(*) FROM leasehold.log)
