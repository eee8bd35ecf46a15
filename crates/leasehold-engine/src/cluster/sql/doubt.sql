-- When what is taken may be free again, and whose it is: $1 the event, $2 its seats. The time now; the first instant at
-- which any of the event's holds is over; and for each of the seats that are taken the instant at which its hold
-- is over, and the hold that has it or whose sale it is, none if it is blocked.
SELECT leasehold.now_ms(),
    (SELECT min(live_until) FROM leasehold.holds WHERE event_no = $1 AND live_until IS NOT NULL),
    array_agg(seat.seat_no), array_agg(hold.live_until), array_agg(coalesce(hold.id, booking.hold))
FROM leasehold.seats AS seat
LEFT JOIN leasehold.holds AS hold ON seat.status = 1 AND hold.id = seat.owner
LEFT JOIN leasehold.bookings AS booking ON seat.status = 2 AND booking.id = seat.owner
WHERE seat.event_no = $1 AND seat.seat_no = ANY ($2) AND seat.status > 0
