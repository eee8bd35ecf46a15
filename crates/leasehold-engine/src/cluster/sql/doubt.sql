-- When what is taken may be free again: $1 the event, $2 its seats. The time now, the first instant at which any of
-- the event's holds is over, and for each of the seats that are held the instant at which its hold is over.
SELECT leasehold.now_ms(),
    (SELECT min(live_until) FROM leasehold.holds WHERE event_no = $1 AND live_until IS NOT NULL),
    array_agg(seat.seat_no), array_agg(hold.live_until)
FROM leasehold.seats AS seat JOIN leasehold.holds AS hold ON hold.id = seat.owner
WHERE seat.event_no = $1 AND seat.seat_no = ANY ($2) AND seat.status = 1 AND hold.live_until IS NOT NULL
