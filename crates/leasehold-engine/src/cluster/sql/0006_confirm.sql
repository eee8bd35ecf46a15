-- 0006: confirm_v1 turns live holds into sales as a whole, many with one call and one commit.
--
-- Arguments: one entry a sale: the hold, the booking's id, the payment's and the order's reference, the key to remember.
--
-- Result: for each sale its verdict. 0 sold, with the event, the number, and the hold's items and holder. 2 not decided
-- here: something about it needs the rules themselves (the hold is over, sold or forgotten, the payment is not the one
-- under way, its key or id is known), and nothing was changed for it.
--
-- First the events' rows are locked, then the time is read, then a second statement decides, as in hold_v1. That a seat
-- is sold once rests on the key of leasehold.sales here as well.

CREATE FUNCTION leasehold.confirm_v1(
    in_holds uuid[], in_bookings uuid[], payment_refs text[], order_refs text[], scopes uuid[], fingerprints uuid[]
) RETURNS TABLE (
    place integer, verdict smallint, at bigint, number bigint, event_no integer, items bigint[], holder text
) LANGUAGE plpgsql VOLATILE
-- As for hold_v1.
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = on
AS $$
#variable_conflict use_column
DECLARE
    locked integer[];
    clock bigint;
BEGIN
    -- What a hold belongs to never changes, so this needs no lock.
    SELECT coalesce(array_agg(DISTINCT event_no), '{}') INTO locked
        FROM leasehold.holds WHERE id = ANY (in_holds);
    IF locked[1] <> ANY (locked) THEN
        -- Whoever keeps one of several events locked shall not have the others wait for long.
        PERFORM set_config('lock_timeout', '250ms', true);
    END IF;
    PERFORM 1 FROM leasehold.events WHERE no = ANY (locked) ORDER BY no FOR UPDATE;
    clock := leasehold.now_ms();
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT ask.place::integer AS place, ask.booking, ask.payment_ref, ask.order_ref, ask.scope, ask.fingerprint,
            hold.id AS hold, hold.event_no, hold.items, hold.holder,
            greatest(clock, event.last_at) AS now_at, event.version,
            -- One that never ends by itself has no end here.
            coalesce(hold.state <= 1 AND coalesce(hold.live_until > greatest(clock, event.last_at), true), false)
                -- A payment under way is the one that it was begun with; any other is new.
                AND coalesce(CASE hold.state
                    WHEN 0 THEN ask.payment_ref IS NULL OR payment.reference IS NULL
                    ELSE hold.payment_ref = ask.payment_ref AND payment.hold = hold.id END, false)
                AND known_answer.scope IS NULL AND known_booking.id IS NULL
                -- Of several about one hold, key, id or payment the first is decided here.
                AND row_number() OVER (PARTITION BY ask.hold ORDER BY ask.place) = 1
                AND row_number() OVER (PARTITION BY ask.booking ORDER BY ask.place) = 1
                AND (ask.scope IS NULL OR row_number() OVER (PARTITION BY ask.scope ORDER BY ask.place) = 1)
                AND (ask.payment_ref IS NULL
                    OR row_number() OVER (PARTITION BY hold.event_no, ask.payment_ref ORDER BY ask.place) = 1)
                AS plain
        FROM unnest(in_holds, in_bookings, payment_refs, order_refs, scopes, fingerprints)
            WITH ORDINALITY AS ask (hold, booking, payment_ref, order_ref, scope, fingerprint, place)
        LEFT JOIN leasehold.holds AS hold ON hold.id = ask.hold
        LEFT JOIN leasehold.events AS event ON event.no = hold.event_no
        LEFT JOIN leasehold.payments AS payment
            ON payment.event_no = hold.event_no AND payment.reference = ask.payment_ref
        LEFT JOIN leasehold.answers AS known_answer ON known_answer.scope = ask.scope
        LEFT JOIN leasehold.bookings AS known_booking ON known_booking.id = ask.booking
    ), sold AS MATERIALIZED (
        SELECT asked.*, asked.version + row_number() OVER (PARTITION BY event_no ORDER BY place) AS number
        FROM asked WHERE plain
    ), parts AS MATERIALIZED (
        SELECT sold.place, sold.event_no, sold.booking, i AS item,
            items[i] AS kind, items[i + 1]::integer AS no, items[i + 2] AS amount
        FROM sold CROSS JOIN LATERAL generate_series(1, cardinality(items), 3) AS i
    ), of_seats AS MATERIALIZED (
        SELECT place, array_agg(part ORDER BY item, turn) AS seat_log
        FROM parts CROSS JOIN LATERAL (VALUES (1, no), (2, 2)) AS pair (turn, part)
        WHERE kind = 0 GROUP BY place
    ), units AS MATERIALIZED (
        -- Every pool that is sold of: what was sold of it up to and with this sale.
        SELECT part.place, part.item, part.event_no, part.no AS pool_no, part.amount::integer AS quantity,
            sum(part.amount) OVER (PARTITION BY part.event_no, part.no ORDER BY part.place)::integer AS upto,
            pool.capacity, pool.held, pool.sold, pool.blocked
        FROM parts AS part JOIN leasehold.pools AS pool ON pool.event_no = part.event_no AND pool.pool_no = part.no
        WHERE part.kind = 1
    ), of_units AS MATERIALIZED (
        SELECT place, array_agg(part ORDER BY item, turn) AS pool_log
        FROM units CROSS JOIN LATERAL (
            VALUES (1, pool_no), (2, capacity), (3, held - upto), (4, units.sold + upto), (5, blocked)
        ) AS numbers (turn, part)
        GROUP BY place
    ), new_sales AS (
        INSERT INTO leasehold.sales (event_no, seat_no, booking)
        SELECT event_no, no, booking FROM parts WHERE kind = 0
    ), new_bookings AS (
        INSERT INTO leasehold.bookings (id, event_no, number, hold, cancelled, items, holder, payment_ref, order_ref,
            revived, booked_at)
        SELECT booking, event_no, number, hold, false, items, holder, payment_ref, order_ref, false, now_at
        FROM sold ORDER BY place
    ), new_holds AS (
        UPDATE leasehold.holds AS known SET state = 2, version = known.version + 1, booking = sold.booking,
            ended_at = sold.now_at, live_until = NULL, kept_until = NULL
        FROM sold WHERE known.id = ANY (in_holds) AND known.id = sold.hold
    ), new_seats AS (
        INSERT INTO leasehold.seats AS known (event_no, seat_no, fence, status, owner)
        SELECT event_no, no, amount, 2, booking FROM parts WHERE kind = 0
        ON CONFLICT (event_no, seat_no) DO UPDATE SET status = excluded.status, owner = excluded.owner
    ), new_units AS (
        UPDATE leasehold.pools AS known SET held = known.held - more.quantity, sold = known.sold + more.quantity
        FROM (SELECT event_no, pool_no, sum(quantity)::integer AS quantity
            FROM units GROUP BY event_no, pool_no) AS more
        WHERE known.event_no = more.event_no AND known.pool_no = more.pool_no
    ), new_payments AS (
        INSERT INTO leasehold.payments AS known (event_no, reference, hold, number, state)
        SELECT event_no, payment_ref, hold, number, 1 FROM sold WHERE payment_ref IS NOT NULL
        ON CONFLICT (event_no, reference) DO UPDATE SET state = excluded.state
    ), new_log AS (
        INSERT INTO leasehold.log (event_no, version, at, kind, seats, pools, subject)
        SELECT event_no, number, now_at, 12, seat_log, pool_log, hold
        FROM sold FULL JOIN of_seats USING (place) FULL JOIN of_units USING (place)
    ), new_answers AS (
        INSERT INTO leasehold.answers (scope, fingerprint, event_no, at, answer, booking)
        SELECT scope, fingerprint, event_no, now_at, '', booking FROM sold WHERE scope IS NOT NULL
    ), new_versions AS (
        -- Last of all, and under the lock that was taken first of all.
        UPDATE leasehold.events AS known SET
            version = known.version + more.sales, last_at = more.now_at,
            seats_held = known.seats_held - more.seats, seats_sold = known.seats_sold + more.seats
        FROM (
            SELECT event_no, now_at, count(*) AS sales, coalesce(sum(cardinality(seat_log) / 2), 0) AS seats
            FROM sold FULL JOIN of_seats USING (place) GROUP BY event_no, now_at
        ) AS more
        WHERE known.no = more.event_no
    )
    SELECT asked.place, (CASE WHEN sold.place IS NOT NULL THEN 0 ELSE 2 END)::smallint, asked.now_at, sold.number,
        asked.event_no, asked.items, asked.holder
    FROM asked FULL JOIN sold USING (place);
END $$;
