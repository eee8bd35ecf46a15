-- 0003: write_v1 writes what the rules changed, in the transaction that loaded it.
--
-- Argument: after-images, by table. A list that is absent or empty changes nothing.
-- The event's row comes last: its version is what readers of the log go by.

CREATE FUNCTION leasehold.write_v1(images json) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    part json;
BEGIN
    part := images -> 'forgotten';
    IF part IS NOT NULL THEN
        DELETE FROM leasehold.payments WHERE hold IN (SELECT json_array_elements_text(part)::uuid);
        DELETE FROM leasehold.holds WHERE id IN (SELECT json_array_elements_text(part)::uuid);
    END IF;

    part := images -> 'holds';
    IF part IS NOT NULL THEN
        INSERT INTO leasehold.holds AS known (
            id, event_no, number, state, version, extends, items, holder, created_at, expires_at, hard_deadline,
            life_end, ended_at, payment_ref, payment_deadline, payment_remaining, payment_kept, booking,
            live_until, kept_until, retention)
        SELECT id, event_no, number, state, version, extends, items, holder, created_at, expires_at, hard_deadline,
            life_end, ended_at, payment_ref, payment_deadline, payment_remaining, payment_kept, booking,
            live_until, kept_until, retention
        FROM json_populate_recordset(NULL::leasehold.holds, part)
        ON CONFLICT (id) DO UPDATE SET
            state = excluded.state, version = excluded.version, extends = excluded.extends,
            items = excluded.items, expires_at = excluded.expires_at, ended_at = excluded.ended_at,
            payment_ref = excluded.payment_ref, payment_deadline = excluded.payment_deadline,
            payment_remaining = excluded.payment_remaining, payment_kept = excluded.payment_kept,
            booking = excluded.booking, live_until = excluded.live_until, kept_until = excluded.kept_until,
            retention = excluded.retention;
    END IF;

    part := images -> 'seats';
    IF part IS NOT NULL THEN
        INSERT INTO leasehold.seats AS known (event_no, seat_no, fence, status, owner)
        SELECT event_no, seat_no, fence, status, owner FROM json_populate_recordset(NULL::leasehold.seats, part)
        ON CONFLICT (event_no, seat_no) DO UPDATE SET
            fence = excluded.fence, status = excluded.status, owner = excluded.owner;
    END IF;

    part := images -> 'pools';
    IF part IS NOT NULL THEN
        UPDATE leasehold.pools AS known SET
            capacity = pool.capacity, held = pool.held, sold = pool.sold, blocked = pool.blocked
        FROM json_populate_recordset(NULL::leasehold.pools, part) AS pool
        WHERE known.event_no = pool.event_no AND known.pool_no = pool.pool_no;
    END IF;

    part := images -> 'bookings';
    IF part IS NOT NULL THEN
        DELETE FROM leasehold.sales AS sale USING json_populate_recordset(NULL::leasehold.bookings, part) AS booking
            WHERE booking.cancelled AND sale.event_no = booking.event_no AND sale.booking = booking.id
              AND sale.seat_no IN (SELECT leasehold.seats_of(booking.items));
        -- A new sale must find its key free; one that was made before is there already.
        INSERT INTO leasehold.sales (event_no, seat_no, booking)
        SELECT booking.event_no, leasehold.seats_of(booking.items), booking.id
        FROM json_populate_recordset(NULL::leasehold.bookings, part) AS booking
        WHERE NOT booking.cancelled AND NOT EXISTS (SELECT 1 FROM leasehold.bookings WHERE id = booking.id);
        INSERT INTO leasehold.bookings AS known
        SELECT * FROM json_populate_recordset(NULL::leasehold.bookings, part)
        ON CONFLICT (id) DO UPDATE SET
            cancelled = excluded.cancelled, cancelled_at = excluded.cancelled_at;
    END IF;

    part := images -> 'blocks_gone';
    IF part IS NOT NULL THEN
        DELETE FROM leasehold.blocks WHERE id IN (SELECT json_array_elements_text(part)::uuid);
    END IF;
    part := images -> 'blocks';
    IF part IS NOT NULL THEN
        INSERT INTO leasehold.blocks SELECT * FROM json_populate_recordset(NULL::leasehold.blocks, part);
    END IF;

    part := images -> 'payments';
    IF part IS NOT NULL THEN
        INSERT INTO leasehold.payments AS known
        SELECT * FROM json_populate_recordset(NULL::leasehold.payments, part)
        ON CONFLICT (event_no, reference) DO UPDATE SET
            state = excluded.state, hold = excluded.hold, number = excluded.number;
    END IF;

    -- Units of holders that have none any more are no row.
    part := images -> 'holders';
    IF part IS NOT NULL THEN
        DELETE FROM leasehold.holders AS known
            USING json_populate_recordset(NULL::leasehold.holders, part) AS holder
            WHERE holder.units = 0 AND known.event_no = holder.event_no AND known.holder = holder.holder;
        INSERT INTO leasehold.holders AS known
        SELECT * FROM json_populate_recordset(NULL::leasehold.holders, part) AS holder WHERE holder.units > 0
        ON CONFLICT (event_no, holder) DO UPDATE SET units = excluded.units;
    END IF;

    part := images -> 'answers';
    IF part IS NOT NULL THEN
        INSERT INTO leasehold.answers (scope, fingerprint, event_no, at, answer)
        SELECT scope, fingerprint, event_no, at, decode(answer, 'hex')
        FROM json_to_recordset(part)
            AS answer (scope uuid, fingerprint uuid, event_no integer, at bigint, answer text);
    END IF;

    part := images -> 'log';
    IF part IS NOT NULL THEN
        INSERT INTO leasehold.log SELECT * FROM json_populate_recordset(NULL::leasehold.log, part);
    END IF;

    part := images -> 'events';
    IF part IS NOT NULL THEN
        UPDATE leasehold.events AS known SET
            closed = event.closed, version = event.version, last_at = event.last_at,
            rules_version = event.rules_version,
            hold_ttl = event.hold_ttl, hold_total_max = event.hold_total_max, extends_max = event.extends_max,
            payment_max = event.payment_max, units_per_holder_max = event.units_per_holder_max,
            accept_late_payment = event.accept_late_payment, keep_at_deadline = event.keep_at_deadline,
            seats_free = event.seats_free, seats_held = event.seats_held, seats_sold = event.seats_sold,
            seats_blocked = event.seats_blocked
        FROM json_populate_recordset(NULL::leasehold.events, part) AS event WHERE known.no = event.no;
    END IF;

    -- Rules that begin or cease to limit holders: what each has is counted anew.
    part := images -> 'recount';
    IF part IS NOT NULL THEN
        DELETE FROM leasehold.holders WHERE event_no IN (SELECT json_array_elements_text(part)::integer);
        INSERT INTO leasehold.holders (event_no, holder, units)
        SELECT event_no, holder, sum(units) FROM (
            SELECT event_no, holder, leasehold.units_of(items) FROM leasehold.holds
                WHERE state <= 1 AND holder IS NOT NULL
            UNION ALL
            SELECT event_no, holder, leasehold.units_of(items) FROM leasehold.bookings
                WHERE NOT cancelled AND holder IS NOT NULL
        ) AS owned (event_no, holder, units)
        WHERE event_no IN (SELECT no FROM leasehold.events WHERE units_per_holder_max > 0
            AND no IN (SELECT json_array_elements_text(part)::integer))
        GROUP BY event_no, holder;
    END IF;
END $$;

-- Seats and units in a list of items, together.
CREATE FUNCTION leasehold.units_of(items bigint[]) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    'SELECT coalesce(sum(CASE items[i] WHEN 0 THEN 1 ELSE items[i + 2] END), 0)::bigint
     FROM generate_series(1, cardinality(items), 3) AS i';

-- create_v1 adds an event and says its number and time; no number when the id is taken or there are too many.
CREATE FUNCTION leasehold.create_v1(
    in_id text, in_rules json, in_image bytea, seat_count integer,
    pool_ids text[], capacities integer[], events_max integer, log_rules json
) RETURNS TABLE (event_no integer, created_at bigint, id_taken boolean) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    number integer;
    now_at bigint;
BEGIN
    -- Whoever creates an event waits here for the others who do.
    SELECT events INTO number FROM leasehold.ledger FOR UPDATE;
    now_at := leasehold.now_ms();
    IF EXISTS (SELECT 1 FROM leasehold.events WHERE id = in_id) THEN
        RETURN QUERY SELECT NULL::integer, now_at, true;
        RETURN;
    END IF;
    IF number >= events_max THEN
        RETURN QUERY SELECT NULL::integer, now_at, false;
        RETURN;
    END IF;
    INSERT INTO leasehold.events
    SELECT number, in_id, false, 1, now_at, now_at, 1, hold_ttl, hold_total_max, extends_max, payment_max,
        units_per_holder_max, accept_late_payment, keep_at_deadline, seat_count, 0, 0, 0
    FROM json_populate_record(NULL::leasehold.events, in_rules);
    INSERT INTO leasehold.venues VALUES (number, in_image);
    INSERT INTO leasehold.pools
    SELECT number, place - 1, id, capacity, 0, 0, 0
    FROM unnest(pool_ids, capacities) WITH ORDINALITY AS pool (id, capacity, place);
    INSERT INTO leasehold.log (event_no, version, at, kind, rules) VALUES (number, 1, now_at, 0, log_rules);
    UPDATE leasehold.ledger SET events = number + 1;
    RETURN QUERY SELECT number, now_at, false;
END $$;
