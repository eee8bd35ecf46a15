-- How event $1 stands at one instant: its row, its pools in order, and the seats that are not free.
SELECT
    (SELECT row_to_json(event) FROM leasehold.events AS event WHERE no = $1)::text,
    (SELECT coalesce(json_agg(pool ORDER BY pool_no), '[]') FROM leasehold.pools AS pool WHERE event_no = $1)::text,
    (SELECT array_agg(seat_no ORDER BY seat_no) FROM leasehold.seats WHERE event_no = $1 AND status <> 0),
    (SELECT array_agg(status ORDER BY seat_no) FROM leasehold.seats WHERE event_no = $1 AND status <> 0)
