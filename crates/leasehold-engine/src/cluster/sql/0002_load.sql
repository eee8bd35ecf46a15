-- 0002: load_v1 locks the events that some commands are about, reads the time, and gives everything that the
-- rules need to decide them, as one JSON document.
--
-- Arguments: what the commands name. The caller is in a transaction; what it got stays true until it ends.
-- The due holds are the first due_max of each event; if there are as many, there may be more.
-- Names carry a version: servers of two versions run side by side during an upgrade.

CREATE FUNCTION leasehold.load_v1(
    in_events integer[],
    in_holds uuid[],
    in_bookings uuid[],
    in_blocks uuid[],
    -- Seats, each with its event, or with a hold of its event.
    seat_events integer[], seat_nos integer[],
    seat_holds uuid[], seat_hold_nos integer[],
    -- Holds whose own seats are wanted too, by whomever they are owned now.
    late_holds uuid[],
    -- Events of which all seats, or all live holds, are wanted; the former also by a hold.
    all_seats integer[], all_seats_of_holds uuid[], all_holds integer[],
    -- Payments by reference, each with its hold.
    payment_holds uuid[], payment_refs text[],
    holder_events integer[], holder_names text[],
    in_scopes uuid[],
    due_max integer
) RETURNS json LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    locked integer[];
    known uuid[];
    now_at bigint;
    scanned integer[];
BEGIN
    -- What a hold, booking or block belongs to never changes, so this needs no lock.
    SELECT coalesce(array_agg(no), '{}') INTO locked FROM (
        SELECT unnest(in_events)
        UNION SELECT event_no FROM leasehold.holds WHERE id = ANY (in_holds)
        UNION SELECT event_no FROM leasehold.bookings WHERE id = ANY (in_bookings)
    ) AS named (no);
    -- One order for everybody: no two servers wait for each other.
    IF locked[1] <> ANY (locked) THEN
        -- Whoever keeps one of several events locked shall not have the others wait for long.
        PERFORM set_config('lock_timeout', '250ms', true);
    END IF;
    PERFORM 1 FROM leasehold.events WHERE no = ANY (locked) ORDER BY no FOR UPDATE;
    -- From here on nobody else changes these events, and every statement sees all that was committed before.
    now_at := CASE WHEN EXISTS (SELECT 1 FROM leasehold.events WHERE no = ANY (locked)) THEN leasehold.now_ms() END;
    SELECT coalesce(array_agg(DISTINCT id), '{}') INTO known FROM (
        SELECT id FROM leasehold.holds WHERE id = ANY (in_holds)
        UNION ALL
        -- An event's time does not go back, even if the clock was set back.
        SELECT due.id FROM leasehold.events AS event, LATERAL (
            SELECT id FROM leasehold.holds
            WHERE event_no = event.no AND live_until <= greatest(now_at, event.last_at)
            ORDER BY live_until, id LIMIT due_max
        ) AS due WHERE event.no = ANY (locked)
        UNION ALL
        SELECT id FROM leasehold.holds WHERE event_no = ANY (all_holds) AND state <= 1
        UNION ALL
        SELECT payment.hold FROM unnest(payment_holds, payment_refs) AS wanted (hold, reference)
            JOIN leasehold.holds AS asking ON asking.id = wanted.hold
            JOIN leasehold.payments AS payment
                ON payment.event_no = asking.event_no AND payment.reference = wanted.reference
    ) AS wanted;
    scanned := all_seats || ARRAY(SELECT event_no FROM leasehold.holds WHERE id = ANY (all_seats_of_holds));
    RETURN json_build_object(
        'now', now_at,
        'events', (SELECT json_agg(event) FROM leasehold.events AS event WHERE no = ANY (locked)),
        'pools', (SELECT json_agg(pool) FROM leasehold.pools AS pool WHERE event_no = ANY (locked)),
        'holds', (SELECT json_agg(hold) FROM leasehold.holds AS hold WHERE id = ANY (known)),
        'payments', (SELECT json_agg(payment) FROM leasehold.payments AS payment WHERE hold = ANY (known)),
        'bookings', (SELECT json_agg(booking) FROM leasehold.bookings AS booking
            WHERE id = ANY (in_bookings || ARRAY(
                SELECT hold.booking FROM leasehold.holds AS hold
                WHERE hold.id = ANY (in_holds) AND hold.booking IS NOT NULL))),
        'blocks', (SELECT json_agg(block) FROM leasehold.blocks AS block WHERE id = ANY (in_blocks)),
        'seats', (SELECT json_agg(json_build_array(seat.event_no, seat.seat_no, seat.fence, seat.status)) FROM (
            SELECT event_no, seat_no, fence, status FROM leasehold.seats
                WHERE (event_no, seat_no) IN (
                    SELECT * FROM unnest(seat_events, seat_nos)
                    UNION
                    SELECT hold.event_no, wanted.seat FROM unnest(seat_holds, seat_hold_nos) AS wanted (hold, seat)
                        JOIN leasehold.holds AS hold ON hold.id = wanted.hold
                    UNION
                    SELECT hold.event_no, leasehold.seats_of(hold.items)
                        FROM leasehold.holds AS hold WHERE hold.id = ANY (late_holds)
                )
            UNION
            SELECT event_no, seat_no, fence, status FROM leasehold.seats WHERE event_no = ANY (scanned)
        ) AS seat),
        'holders', (SELECT json_agg(counted) FROM leasehold.holders AS counted
            WHERE (counted.event_no, counted.holder) IN (
                SELECT * FROM unnest(holder_events, holder_names)
                UNION
                SELECT hold.event_no, hold.holder FROM leasehold.holds AS hold WHERE hold.id = ANY (known)
                UNION
                SELECT booking.event_no, booking.holder
                    FROM leasehold.bookings AS booking WHERE booking.id = ANY (in_bookings)
            )),
        'answers', (SELECT json_agg(json_build_object(
                'scope', scope, 'fingerprint', fingerprint, 'event_no', event_no, 'at', at,
                'answer', encode(answer, 'hex'), 'number', number, 'fences', fences,
                'booking', (SELECT row_to_json(sale) FROM leasehold.bookings AS sale WHERE sale.id = answers.booking)))
            FROM leasehold.answers WHERE scope = ANY (in_scopes))
    );
END $$;
