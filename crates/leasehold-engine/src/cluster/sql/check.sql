-- Recomputes everything that can be, and gives a line for each thing that is wrong; at most a hundred.
WITH owners AS (
    SELECT event_no, id, 1 AS status, items FROM leasehold.holds WHERE state <= 1
    UNION ALL SELECT event_no, id, 2, items FROM leasehold.bookings WHERE NOT cancelled
    UNION ALL SELECT event_no, id, 3, items FROM leasehold.blocks
), claims AS (
    SELECT event_no, id, status, items[i + 1]::integer AS seat_no, items[i + 2] AS fence
    FROM owners, generate_series(1, cardinality(items), 3) AS i WHERE items[i] = 0
), units AS (
    SELECT event_no, items[i + 1]::integer AS pool_no,
        sum(items[i + 2]) FILTER (WHERE status = 1) AS held,
        sum(items[i + 2]) FILTER (WHERE status = 2) AS sold,
        sum(items[i + 2]) FILTER (WHERE status = 3) AS blocked
    FROM owners, generate_series(1, cardinality(items), 3) AS i WHERE items[i] = 1
    GROUP BY event_no, items[i + 1]
)
SELECT problem FROM (
    SELECT format('event %s: seat %s has %s owners', event_no, seat_no, count(*)) AS problem
        FROM claims GROUP BY event_no, seat_no HAVING count(*) > 1
    UNION ALL
    SELECT format('event %s: seat %s has status %s and owner %s, and is claimed by %s',
            coalesce(seat.event_no, claim.event_no), coalesce(seat.seat_no, claim.seat_no),
            seat.status, seat.owner, claim.id)
        FROM (SELECT * FROM leasehold.seats WHERE status <> 0) AS seat
        FULL JOIN claims AS claim USING (event_no, seat_no)
        WHERE seat.owner IS DISTINCT FROM claim.id OR seat.status IS DISTINCT FROM claim.status
           OR seat.fence IS DISTINCT FROM claim.fence
    UNION ALL
    SELECT format('event %s: seat %s has sale %s and is sold by %s', coalesce(sale.event_no, claim.event_no),
            coalesce(sale.seat_no, claim.seat_no), sale.booking, claim.id)
        FROM leasehold.sales AS sale FULL JOIN (SELECT * FROM claims WHERE status = 2) AS claim
            USING (event_no, seat_no)
        WHERE sale.booking IS DISTINCT FROM claim.id
    UNION ALL
    SELECT format('event %s: pool %s counts %s held, %s sold, %s blocked, and its owners have %s, %s, %s',
            pool.event_no, pool.id, pool.held, pool.sold, pool.blocked,
            coalesce(units.held, 0), coalesce(units.sold, 0), coalesce(units.blocked, 0))
        FROM leasehold.pools AS pool LEFT JOIN units USING (event_no, pool_no)
        WHERE (pool.held, pool.sold, pool.blocked)
            <> (coalesce(units.held, 0), coalesce(units.sold, 0), coalesce(units.blocked, 0))
    UNION ALL
    SELECT format('event %s counts %s held, %s sold, %s blocked seats, and has %s, %s, %s',
            event.no, seats_held, seats_sold, seats_blocked, held, sold, blocked)
        FROM leasehold.events AS event CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE status = 1) AS held, count(*) FILTER (WHERE status = 2) AS sold,
                count(*) FILTER (WHERE status = 3) AS blocked
            FROM leasehold.seats WHERE event_no = event.no
        ) AS counted
        WHERE (seats_held, seats_sold, seats_blocked) <> (held, sold, blocked)
    UNION ALL
    SELECT format('event %s: its log goes from %s to %s with %s entries, and its version is %s',
            event.no, first, last, entries, event.version)
        FROM leasehold.events AS event CROSS JOIN LATERAL (
            SELECT min(version) AS first, max(version) AS last, count(*) AS entries
            FROM leasehold.log WHERE event_no = event.no
        ) AS logged
        WHERE last IS DISTINCT FROM event.version OR entries <> last - first + 1
    UNION ALL
    SELECT format('event %s: entry %s is earlier than the one before it', event_no, version)
        FROM (SELECT event_no, version, at, lag(at) OVER (PARTITION BY event_no ORDER BY version) AS before
            FROM leasehold.log) AS entry
        WHERE at < before
    UNION ALL
    SELECT format('event %s: holder %s has %s units, and is counted with %s',
            coalesce(counted.event_no, known.event_no), coalesce(counted.holder, known.holder),
            counted.units, known.units)
        FROM (
            SELECT event_no, holder, sum(leasehold.units_of(items)) AS units FROM (
                SELECT event_no, holder, items FROM leasehold.holds WHERE state <= 1 AND holder IS NOT NULL
                UNION ALL
                SELECT event_no, holder, items FROM leasehold.bookings WHERE NOT cancelled AND holder IS NOT NULL
            ) AS owned
            WHERE event_no IN (SELECT no FROM leasehold.events WHERE units_per_holder_max > 0)
            GROUP BY event_no, holder
        ) AS counted FULL JOIN leasehold.holders AS known USING (event_no, holder)
        WHERE counted.units IS DISTINCT FROM known.units
    UNION ALL
    SELECT format('hold %s is confirmed and its booking is not there', hold.id)
        FROM leasehold.holds AS hold
        WHERE state = 2 AND NOT EXISTS (SELECT 1 FROM leasehold.bookings WHERE id = hold.booking AND hold = hold.id)
    UNION ALL
    SELECT format('booking %s is not that of its hold %s', booking.id, booking.hold)
        FROM leasehold.bookings AS booking
        WHERE NOT EXISTS (
            SELECT 1 FROM leasehold.holds AS hold WHERE hold.id = booking.hold AND hold.booking = booking.id
        )
    UNION ALL
    SELECT format('hold %s ends by itself at %s, and should at %s', id, live_until, due)
        FROM (SELECT *, CASE WHEN state = 0 OR state = 1 AND payment_ref IS NULL THEN expires_at
                WHEN state = 1 AND NOT payment_kept THEN payment_deadline END AS due FROM leasehold.holds) AS hold
        WHERE live_until IS DISTINCT FROM due OR due > life_end
           OR state = 0 AND payment_ref IS NULL AND expires_at > hard_deadline
    UNION ALL
    SELECT format('payment %s of event %s is in state %s, with %s bookings, and its hold %s in state %s',
            reference, event_no, state, booked, hold, hold_state)
        FROM (
            SELECT payment.*, hold.state AS hold_state, coalesce(sale.booked, 0) AS booked,
                coalesce(hold.state = 1 AND hold.payment_ref = payment.reference, false) AS is_paying
            FROM leasehold.payments AS payment
            LEFT JOIN leasehold.holds AS hold ON hold.id = payment.hold
            LEFT JOIN (
                SELECT event_no, hold, payment_ref, count(*) AS booked FROM leasehold.bookings GROUP BY 1, 2, 3
            ) AS sale ON (sale.event_no, sale.hold, sale.payment_ref)
                = (payment.event_no, payment.hold, payment.reference)
        ) AS payment
        WHERE hold_state IS NULL OR NOT CASE state
            WHEN 0 THEN is_paying AND booked = 0 WHEN 1 THEN booked = 1 ELSE NOT is_paying AND booked = 0 END
    UNION ALL
    SELECT format('hold %s of event %s has no payment %s', hold, event_no, payment_ref)
        FROM (
            SELECT hold, event_no, payment_ref FROM leasehold.bookings WHERE payment_ref IS NOT NULL
            UNION SELECT id, event_no, payment_ref FROM leasehold.holds WHERE payment_ref IS NOT NULL
        ) AS named
        WHERE NOT EXISTS (SELECT 1 FROM leasehold.payments AS payment WHERE payment.hold = named.hold
            AND payment.event_no = named.event_no AND payment.reference = named.payment_ref)
) AS problems
LIMIT 100
