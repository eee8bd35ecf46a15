-- 0005: hold_v1 grants plain holds: seats by name and units of pools, many holds with one call and one commit.
--
-- Arguments: one entry a hold (its id, event, version of the rules its caller went by, holder, life in
-- milliseconds, key and answer to remember); one entry a seat and one entry a pool, in order, with the place of
-- the hold that wants it. The caller has merged pools and refused what makes no sense by itself.
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
    seat_places integer[], seat_nos integer[],
    pool_places integer[], pool_nos integer[], quantities integer[],
    fence_floor bigint
) RETURNS TABLE (place integer, verdict smallint, at bigint, number bigint, fences bigint[], taken integer[])
LANGUAGE plpgsql VOLATILE
-- One plan for good: to plan this takes longer than to run it for a hundred holds. FULL JOIN where a LEFT JOIN would do
-- keeps a plan that was made for a few holds from comparing hundreds with each other one by one.
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = on
AS $$
#variable_conflict use_column
DECLARE
    clock bigint;
    -- The time of each hold's event, which does not go back even if the clock was set back.
    times bigint[];
BEGIN
    IF event_nos[1] <> ANY (event_nos) THEN
        -- Whoever keeps one of several events locked shall not have the others wait for long.
        PERFORM set_config('lock_timeout', '250ms', true);
    END IF;
    PERFORM 1 FROM leasehold.events WHERE no = ANY (event_nos) ORDER BY no FOR UPDATE;
    clock := leasehold.now_ms();
    SELECT array_agg(greatest(clock, event.last_at) ORDER BY ask.place) INTO times
        FROM unnest(event_nos) WITH ORDINALITY AS ask (event_no, place)
        LEFT JOIN leasehold.events AS event ON event.no = ask.event_no;
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT ask.place::integer AS place, ask.id, ask.event_no, ask.holder, ask.ttl, ask.scope,
            ask.fingerprint, ask.answer, times[ask.place] AS now_at,
            event.version, event.hold_total_max, event.payment_max,
            coalesce(event.rules_version = ask.rules_version, false)
                AND known_hold.id IS NULL AND known_answer.scope IS NULL
                -- Of two with one key the second is a repetition, and is answered as one.
                AND (ask.scope IS NULL OR row_number() OVER (PARTITION BY ask.scope ORDER BY ask.place) = 1) AS plain
        FROM unnest(ids, event_nos, rules_versions, holders, ttls, scopes, fingerprints, answers)
            WITH ORDINALITY AS ask (id, event_no, rules_version, holder, ttl, scope, fingerprint, answer, place)
        LEFT JOIN leasehold.events AS event ON event.no = ask.event_no
        LEFT JOIN leasehold.holds AS known_hold ON known_hold.id = ask.id
        LEFT JOIN leasehold.answers AS known_answer ON known_answer.scope = ask.scope
    ), wanted_seats AS MATERIALIZED (
        SELECT item.place, item.item, event_nos[item.place] AS event_no, item.seat_no
        FROM unnest(seat_places, seat_nos) WITH ORDINALITY AS item (place, seat_no, item)
    ), seats AS MATERIALIZED (
        -- Every seat that is asked for: how it stands, and who of this batch was first to ask.
        SELECT item.place, item.item, item.event_no, item.seat_no,
            greatest(coalesce(seat.fence, 0), fence_floor) + 1 AS fence,
            coalesce(seat.status, 0) <> 0 AND NOT coalesce(owner.live_until <= times[item.place], false) AS is_taken,
            coalesce(owner.live_until <= times[item.place], false) AS is_over,
            first_value(item.place) OVER (PARTITION BY item.event_no, item.seat_no ORDER BY item.place) AS first_place
        FROM wanted_seats AS item
        LEFT JOIN leasehold.seats AS seat ON seat.event_no = item.event_no AND seat.seat_no = item.seat_no
        LEFT JOIN leasehold.holds AS owner ON seat.status = 1 AND owner.id = seat.owner
    ), in_the_way AS MATERIALIZED (
        SELECT * FROM seats WHERE is_taken OR is_over OR first_place <> place
    ), wanted_units AS MATERIALIZED (
        SELECT item.place, item.item, event_nos[item.place] AS event_no, item.pool_no, item.quantity
        FROM unnest(pool_places, pool_nos, quantities) WITH ORDINALITY AS item (place, pool_no, quantity, item)
    ), units AS MATERIALIZED (
        -- Every pool that is asked for by those who get their seats: what they want of it up to and with this hold.
        SELECT item.place, item.item, item.event_no, item.pool_no, item.quantity,
            sum(item.quantity::bigint) OVER (PARTITION BY item.event_no, item.pool_no ORDER BY item.place)
                <= coalesce(pool.capacity - pool.held - pool.sold - pool.blocked, -1) AS is_enough,
            pool.capacity, pool.held, pool.sold, pool.blocked
        FROM wanted_units AS item
        LEFT JOIN leasehold.pools AS pool ON pool.event_no = item.event_no AND pool.pool_no = item.pool_no
        WHERE item.place <> ALL (ARRAY(SELECT place FROM in_the_way))
    ), granted AS MATERIALIZED (
        SELECT asked.*, asked.version + row_number() OVER (PARTITION BY event_no ORDER BY place) AS number
        FROM asked
        WHERE plain AND place <> ALL (ARRAY(SELECT place FROM in_the_way))
          AND place <> ALL (ARRAY(SELECT place FROM units WHERE NOT is_enough))
    ), refused AS MATERIALIZED (
        -- Taken for good: by somebody else, or just now by a neighbour in this batch.
        SELECT place, array_agg(seat_no ORDER BY item) AS taken
        FROM in_the_way
        WHERE (is_taken OR first_place = ANY (ARRAY(SELECT place FROM granted)))
          AND place = ANY (ARRAY(SELECT place FROM asked WHERE plain))
          AND place <> ALL (ARRAY(SELECT place FROM in_the_way WHERE is_over))
        GROUP BY place
    ), granted_seats AS MATERIALIZED (
        SELECT place, item, seats.event_no, seat_no, fence, granted.id FROM seats JOIN granted USING (place)
    ), of_seats AS MATERIALIZED (
        SELECT place, array_agg(seat_no ORDER BY item) AS nos, array_agg(fence ORDER BY item) AS fences
        FROM granted_seats GROUP BY place
    ), granted_units AS MATERIALIZED (
        SELECT units.*,
            sum(units.quantity) OVER (PARTITION BY units.event_no, pool_no ORDER BY place)::integer AS upto
        FROM units JOIN granted USING (place)
    ), of_units AS MATERIALIZED (
        SELECT place,
            array_agg(part ORDER BY item, turn) FILTER (WHERE turn <= 3) AS items,
            array_agg(part ORDER BY item, turn) FILTER (WHERE turn > 3) AS counts
        FROM granted_units CROSS JOIN LATERAL (
            VALUES (1, 1), (2, pool_no), (3, quantity),
                (4, pool_no), (5, capacity), (6, held + upto), (7, sold), (8, blocked)) AS parts (turn, part)
        GROUP BY place
    ), made AS MATERIALIZED (
        -- One seat is what most want, and needs no sorting.
        SELECT granted.*, of_seats.fences,
            (CASE cardinality(nos) WHEN 1 THEN ARRAY[0, nos[1], fences[1]] ELSE
                (SELECT array_agg(part ORDER BY item, turn)
                 FROM unnest(nos, fences) WITH ORDINALITY AS seat (no, fence, item)
                 CROSS JOIN LATERAL (VALUES (1, 0::bigint), (2, no::bigint), (3, fence)) AS parts (turn, part))
             END) || of_units.items::bigint[] AS items,
            (CASE cardinality(nos) WHEN 1 THEN ARRAY[nos[1], 1] ELSE
                (SELECT array_agg(part ORDER BY item, turn)
                 FROM unnest(nos) WITH ORDINALITY AS seat (no, item)
                 CROSS JOIN LATERAL (VALUES (1, no), (2, 1)) AS parts (turn, part))
             END) AS seat_log,
            of_units.counts AS pool_log
        FROM granted FULL JOIN of_seats USING (place) FULL JOIN of_units USING (place)
    ), new_holds AS (
        INSERT INTO leasehold.holds (id, event_no, number, state, version, extends, items, holder, created_at,
            expires_at, hard_deadline, life_end, live_until)
        SELECT id, event_no, number, 0, 1, 0, items, holder, now_at, now_at + ttl,
            now_at + hold_total_max, now_at + hold_total_max + payment_max, now_at + ttl
        FROM made ORDER BY place
    ), new_seats AS (
        INSERT INTO leasehold.seats AS known (event_no, seat_no, fence, status, owner)
        SELECT event_no, seat_no, fence, 1, id FROM granted_seats
        ON CONFLICT (event_no, seat_no) DO UPDATE SET
            fence = excluded.fence, status = excluded.status, owner = excluded.owner
    ), new_units AS (
        UPDATE leasehold.pools AS known SET held = known.held + more.quantity
        FROM (SELECT event_no, pool_no, sum(quantity)::integer AS quantity
            FROM granted_units GROUP BY event_no, pool_no) AS more
        WHERE known.event_no = more.event_no AND known.pool_no = more.pool_no
    ), new_log AS (
        INSERT INTO leasehold.log (event_no, version, at, kind, seats, pools, subject)
        SELECT event_no, number, now_at, 4, seat_log, pool_log, id FROM made
    ), new_answers AS (
        INSERT INTO leasehold.answers (scope, fingerprint, event_no, at, answer, number, fences)
        SELECT scope, fingerprint, event_no, now_at, answer, number, coalesce(fences, '{}')
        FROM made WHERE scope IS NOT NULL
    ), new_versions AS (
        -- Last of all, and under the lock that was taken first of all.
        UPDATE leasehold.events AS known SET
            version = known.version + more.holds, last_at = more.now_at,
            seats_free = known.seats_free - more.seats, seats_held = known.seats_held + more.seats
        FROM (
            SELECT event_no, now_at, count(*) AS holds, coalesce(sum(cardinality(fences)), 0) AS seats
            FROM made GROUP BY event_no, now_at
        ) AS more
        WHERE known.no = more.event_no
    )
    SELECT asked.place,
        (CASE WHEN made.place IS NOT NULL THEN 0 WHEN refused.place IS NOT NULL THEN 1 ELSE 2 END)::smallint,
        asked.now_at, made.number, made.fences, refused.taken
    FROM asked FULL JOIN made USING (place) FULL JOIN refused USING (place);
END $$;
