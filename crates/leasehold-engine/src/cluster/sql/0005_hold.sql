-- 0005: hold_v1 grants plain holds: seats by name and units of pools, many holds with one call and one commit.
--
-- Arguments: one entry a hold (its id, event, version of the rules its caller went by, holder, life in
-- milliseconds, key and answer to remember), and one entry an item, in order, with the place of its hold.
-- The caller has merged pools and refused what makes no sense by itself.
--
-- Result: for each hold its verdict. 0 granted, with number and fences. 1 refused, with the seats that are taken.
-- 2 not decided here: something about it needs the rules themselves (a hold that is over is in its way, the pool
-- is short, the rules have changed, its key or id is known), and nothing was changed for it.
--
-- First the events' rows are locked, in one order; then the time is read; then a second statement decides, which
-- sees everything that was committed before. A condition in the first would be judged by an older state.

CREATE FUNCTION leasehold.hold_v1(
    ids uuid[], event_nos integer[], rules_versions bigint[], holders text[], ttls bigint[],
    scopes uuid[], fingerprints uuid[], answers bytea[],
    item_holds integer[], item_kinds smallint[], item_nos integer[], item_quantities integer[],
    fence_floor bigint
) RETURNS TABLE (place integer, verdict smallint, at bigint, number bigint, fences bigint[], taken integer[])
LANGUAGE plpgsql VOLATILE
-- Planned for each call: a plan for one hold joins the lists below with each other row by row, which is slow for hundreds.
SET plan_cache_mode = force_custom_plan
SET enable_hashjoin = on
AS $$
#variable_conflict use_column
DECLARE
    now_at bigint;
BEGIN
    PERFORM 1 FROM leasehold.events WHERE no = ANY (event_nos) ORDER BY no FOR UPDATE;
    SELECT greatest(leasehold.now_ms(), max(last_at)) INTO now_at
        FROM leasehold.events WHERE no = ANY (event_nos);
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT ask.place::integer AS place, ask.id, ask.event_no, ask.holder, ask.ttl, ask.scope,
            ask.fingerprint, ask.answer, event.version, event.hold_total_max, event.payment_max,
            coalesce(event.rules_version = ask.rules_version, false)
                AND known_hold.id IS NULL AND known_answer.scope IS NULL AS plain
        FROM unnest(ids, event_nos, rules_versions, holders, ttls, scopes, fingerprints, answers)
            WITH ORDINALITY AS ask (id, event_no, rules_version, holder, ttl, scope, fingerprint, answer, place)
        LEFT JOIN leasehold.events AS event ON event.no = ask.event_no
        LEFT JOIN leasehold.holds AS known_hold ON known_hold.id = ask.id
        LEFT JOIN leasehold.answers AS known_answer ON known_answer.scope = ask.scope
    ), wanted AS MATERIALIZED (
        SELECT item.hold AS place, item.item, event_nos[item.hold] AS event_no, item.kind, item.no, item.quantity
        FROM unnest(item_holds, item_kinds, item_nos, item_quantities) WITH ORDINALITY
            AS item (hold, kind, no, quantity, item)
    ), seats AS MATERIALIZED (
        -- Every seat that is asked for: how it stands, and who of this batch was first to ask.
        SELECT item.place, item.item, item.event_no, item.no AS seat_no,
            greatest(coalesce(seat.fence, 0), fence_floor) + 1 AS fence,
            coalesce(seat.status, 0) <> 0 AND NOT coalesce(owner.live_until <= now_at, false) AS is_taken,
            coalesce(owner.live_until <= now_at, false) AS is_over,
            first_value(item.place) OVER (PARTITION BY item.event_no, item.no ORDER BY item.place) AS first_place
        FROM wanted AS item
        LEFT JOIN leasehold.seats AS seat ON seat.event_no = item.event_no AND seat.seat_no = item.no
        LEFT JOIN leasehold.holds AS owner ON seat.status = 1 AND owner.id = seat.owner
        WHERE item.kind = 0
    ), units AS MATERIALIZED (
        -- Every pool that is asked for: what this batch wants of it up to and with this hold.
        SELECT item.place, item.item, item.event_no, item.no AS pool_no, item.quantity,
            sum(item.quantity::bigint) OVER (PARTITION BY item.event_no, item.no ORDER BY item.place)
                <= coalesce(pool.capacity - pool.held - pool.sold - pool.blocked, -1) AS is_enough,
            pool.capacity, pool.held, pool.sold, pool.blocked
        FROM wanted AS item
        LEFT JOIN leasehold.pools AS pool ON pool.event_no = item.event_no AND pool.pool_no = item.no
        WHERE item.kind = 1
    ), of_seats AS MATERIALIZED (
        SELECT place, bool_or(is_taken) AS some_taken, bool_or(is_over) AS some_over,
            bool_and(first_place = place) AS is_first
        FROM seats GROUP BY place
    ), of_units AS MATERIALIZED (
        SELECT place, bool_and(is_enough) AS all_enough FROM units GROUP BY place
    ), granted AS MATERIALIZED (
        SELECT asked.*, asked.version + row_number() OVER (PARTITION BY event_no ORDER BY place) AS number
        FROM asked LEFT JOIN of_seats USING (place) LEFT JOIN of_units USING (place)
        WHERE asked.plain AND NOT coalesce(some_taken OR some_over, false) AND coalesce(is_first, true)
          AND coalesce(all_enough, true)
    ), refused AS MATERIALIZED (
        -- Taken for good: by somebody else, or just now by a neighbour in this batch.
        SELECT seats.place, array_agg(seats.seat_no ORDER BY seats.item) AS taken
        FROM seats JOIN asked USING (place) JOIN of_seats USING (place)
        LEFT JOIN granted AS neighbour ON neighbour.place = seats.first_place AND seats.first_place <> seats.place
        WHERE asked.plain AND NOT of_seats.some_over AND (seats.is_taken OR neighbour.place IS NOT NULL)
        GROUP BY seats.place
    ), granted_units AS MATERIALIZED (
        SELECT units.*, sum(units.quantity) OVER (PARTITION BY units.event_no, pool_no ORDER BY place)::integer AS upto
        FROM units JOIN granted USING (place)
    ), items AS MATERIALIZED (
        SELECT place, array_agg(value ORDER BY item, part) AS items FROM (
            SELECT place, item, part, value FROM seats JOIN granted USING (place)
                CROSS JOIN LATERAL (VALUES (1, 0::bigint), (2, seat_no::bigint), (3, fence)) AS parts (part, value)
            UNION ALL
            SELECT place, item, part, value FROM granted_units
                CROSS JOIN LATERAL (VALUES (1, 1::bigint), (2, pool_no::bigint), (3, quantity::bigint))
                    AS parts (part, value)
        ) AS numbers GROUP BY place
    ), seat_log AS MATERIALIZED (
        SELECT place, array_agg(fence ORDER BY item) FILTER (WHERE turn = 1) AS fences,
            array_agg(part ORDER BY item, turn) AS seats
        FROM seats JOIN granted USING (place)
            CROSS JOIN LATERAL (VALUES (1, seat_no), (2, 1)) AS parts (turn, part)
        GROUP BY place
    ), pool_log AS MATERIALIZED (
        SELECT place, array_agg(part ORDER BY item, turn) AS pools
        FROM granted_units CROSS JOIN LATERAL (
            VALUES (1, pool_no), (2, capacity), (3, held + upto), (4, sold), (5, blocked)) AS parts (turn, part)
        GROUP BY place
    ), new_holds AS (
        INSERT INTO leasehold.holds (id, event_no, number, state, version, extends, items, holder, created_at,
            expires_at, hard_deadline, life_end, live_until)
        SELECT id, event_no, number, 0, 1, 0, items.items, holder, now_at, now_at + ttl,
            now_at + hold_total_max, now_at + hold_total_max + payment_max, now_at + ttl
        FROM granted JOIN items USING (place) ORDER BY place
    ), new_seats AS (
        INSERT INTO leasehold.seats AS known (event_no, seat_no, fence, status, owner)
        SELECT seats.event_no, seat_no, fence, 1, granted.id FROM seats JOIN granted USING (place)
        ON CONFLICT (event_no, seat_no) DO UPDATE SET
            fence = excluded.fence, status = excluded.status, owner = excluded.owner
    ), new_units AS (
        UPDATE leasehold.pools AS known SET held = known.held + more.quantity
        FROM (SELECT event_no, pool_no, sum(quantity)::integer AS quantity
            FROM granted_units GROUP BY event_no, pool_no) AS more
        WHERE known.event_no = more.event_no AND known.pool_no = more.pool_no
    ), new_log AS (
        INSERT INTO leasehold.log (event_no, version, at, kind, seats, pools, subject)
        SELECT event_no, number, now_at, 4, seat_log.seats, pool_log.pools, id
        FROM granted LEFT JOIN seat_log USING (place) LEFT JOIN pool_log USING (place)
    ), new_answers AS (
        INSERT INTO leasehold.answers (scope, fingerprint, event_no, at, answer, number, fences)
        SELECT scope, fingerprint, event_no, now_at, answer, number, coalesce(seat_log.fences, '{}')
        FROM granted LEFT JOIN seat_log USING (place) WHERE scope IS NOT NULL
    ), new_versions AS (
        -- Last of all, and under the lock that was taken first of all.
        UPDATE leasehold.events AS known SET
            version = known.version + more.holds, last_at = now_at,
            seats_free = known.seats_free - more.seats, seats_held = known.seats_held + more.seats
        FROM (
            SELECT granted.event_no, count(DISTINCT granted.place) AS holds, count(seats.seat_no) AS seats
            FROM granted LEFT JOIN seats USING (place) GROUP BY granted.event_no
        ) AS more
        WHERE known.no = more.event_no
    )
    SELECT asked.place,
        (CASE WHEN granted.place IS NOT NULL THEN 0 WHEN refused.place IS NOT NULL THEN 1 ELSE 2 END)::smallint,
        now_at, granted.number, seat_log.fences, refused.taken
    FROM asked LEFT JOIN granted USING (place) LEFT JOIN seat_log USING (place) LEFT JOIN refused USING (place);
END $$;
