-- 0010: hold_v2 is hold_v1 with a short way for what a hot sale is made of: holds of one event, of one seat each or of units
-- of one pool each, with nothing in anybody's way.
--
-- Arguments and result are those of hold_v1. Whatever is not as plain as that (several events, several items, seats and
-- units, rules that have changed, a seat that somebody has or two want, too few units, a known key or id) is left to
-- hold_v1 as a whole: under the lock on the event's row nothing can have changed in between.

CREATE FUNCTION leasehold.hold_v2(
    ids uuid[], event_nos integer[], rules_versions bigint[], holders text[], ttls bigint[],
    scopes uuid[], fingerprints uuid[], answers bytea[],
    seat_places integer[], seat_nos integer[],
    pool_places integer[], pool_nos integer[], quantities integer[],
    fence_floor bigint
) RETURNS TABLE (place integer, verdict smallint, at bigint, number bigint, fences bigint[], taken integer[])
LANGUAGE plpgsql VOLATILE
-- As for hold_v1, one plan for good; and since it may be made while the tables are empty, no other than row by row by a key.
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_material = off
AS $$
#variable_conflict use_column
DECLARE
    holds integer := cardinality(ids);
    -- Every hold has at least one item, so as many items as holds is one for each.
    of_seats boolean := cardinality(seat_nos) = holds AND cardinality(pool_nos) = 0;
    of_units boolean := cardinality(pool_nos) = holds AND cardinality(seat_nos) = 0;
    keys integer := cardinality(array_remove(scopes, NULL));
    event leasehold.events;
    now_at bigint;
    is_free boolean := false;
    -- In the order of the holds.
    new_fences bigint[];
    known_seats integer := 0;
BEGIN
    IF (of_seats OR of_units) AND event_nos[1] = ALL (event_nos) THEN
        SELECT * INTO event FROM leasehold.events WHERE no = event_nos[1] FOR UPDATE;
        now_at := greatest(leasehold.now_ms(), event.last_at);
        -- Statements of their own, so that they see everything that was committed before the lock.
        SELECT event.rules_version = ALL (rules_versions)
            AND NOT EXISTS (SELECT 1 FROM leasehold.holds WHERE id = ANY (ids))
            AND (of_units OR (SELECT count(DISTINCT seat_no) FROM unnest(seat_nos) AS seat_no) = holds)
            AND (keys = 0 OR (SELECT count(DISTINCT scope) FROM unnest(scopes) AS scope) = keys
                AND NOT EXISTS (SELECT 1 FROM leasehold.answers WHERE scope = ANY (scopes)))
            INTO is_free;
        IF is_free AND of_seats THEN
            SELECT array_agg(greatest(coalesce(seat.fence, 0), fence_floor) + 1 ORDER BY ask.place),
                count(seat.fence), bool_and(coalesce(seat.status, 0) = 0)
                INTO new_fences, known_seats, is_free
                FROM unnest(seat_nos) WITH ORDINALITY AS ask (seat_no, place)
                LEFT JOIN leasehold.seats AS seat ON seat.event_no = event.no AND seat.seat_no = ask.seat_no;
        ELSIF is_free THEN
            SELECT bool_and(coalesce(more.quantity <= pool.capacity - pool.held - pool.sold - pool.blocked, false))
                INTO is_free
                FROM (SELECT pool_no, sum(quantity::bigint) AS quantity
                    FROM unnest(pool_nos, quantities) AS ask (pool_no, quantity) GROUP BY pool_no) AS more
                LEFT JOIN leasehold.pools AS pool ON pool.event_no = event.no AND pool.pool_no = more.pool_no;
        END IF;
    END IF;
    IF is_free IS NOT TRUE THEN
        RETURN QUERY SELECT * FROM leasehold.hold_v1(ids, event_nos, rules_versions, holders, ttls, scopes, fingerprints,
            answers, seat_places, seat_nos, pool_places, pool_nos, quantities, fence_floor);
        RETURN;
    END IF;

    INSERT INTO leasehold.holds (id, event_no, number, state, version, extends, items, holder, created_at,
        expires_at, hard_deadline, life_end, live_until)
    SELECT ask.id, event.no, event.version + ask.place, 0, 1, 0,
        CASE WHEN of_seats THEN ARRAY[0, ask.seat_no, ask.fence] ELSE ARRAY[1, ask.pool_no, ask.quantity] END,
        ask.holder, now_at, now_at + ask.ttl, now_at + event.hold_total_max,
        now_at + event.hold_total_max + event.payment_max, now_at + ask.ttl
    FROM unnest(ids, holders, ttls, seat_nos, new_fences, pool_nos, quantities) WITH ORDINALITY
        AS ask (id, holder, ttl, seat_no, fence, pool_no, quantity, place);
    IF of_units THEN
        INSERT INTO leasehold.log (event_no, version, at, kind, pools, subject)
        SELECT event.no, event.version + ask.place, now_at, 4,
            ARRAY[pool.pool_no, pool.capacity,
                pool.held + sum(ask.quantity) OVER (PARTITION BY ask.pool_no ORDER BY ask.place)::integer,
                pool.sold, pool.blocked], ask.id
        FROM unnest(ids, pool_nos, quantities) WITH ORDINALITY AS ask (id, pool_no, quantity, place)
        JOIN leasehold.pools AS pool ON pool.event_no = event.no AND pool.pool_no = ask.pool_no;
        UPDATE leasehold.pools AS known SET held = known.held + more.quantity
        FROM (SELECT pool_no, sum(quantity)::integer AS quantity
            FROM unnest(pool_nos, quantities) AS ask (pool_no, quantity) GROUP BY pool_no) AS more
        WHERE known.event_no = event.no AND known.pool_no = more.pool_no;
    ELSE
        INSERT INTO leasehold.log (event_no, version, at, kind, seats, subject)
        SELECT event.no, event.version + ask.place, now_at, 4, ARRAY[ask.seat_no, 1], ask.id
        FROM unnest(ids, seat_nos) WITH ORDINALITY AS ask (id, seat_no, place);
    END IF;
    IF of_seats AND known_seats = 0 THEN
        -- Cheaper than the next one, which looks for a row first.
        INSERT INTO leasehold.seats (event_no, seat_no, fence, status, owner)
        SELECT event.no, ask.seat_no, ask.fence, 1, ask.id
        FROM unnest(ids, seat_nos, new_fences) AS ask (id, seat_no, fence);
    ELSIF of_seats THEN
        INSERT INTO leasehold.seats AS known (event_no, seat_no, fence, status, owner)
        SELECT event.no, ask.seat_no, ask.fence, 1, ask.id
        FROM unnest(ids, seat_nos, new_fences) AS ask (id, seat_no, fence)
        ON CONFLICT (event_no, seat_no) DO UPDATE SET
            fence = excluded.fence, status = excluded.status, owner = excluded.owner;
    END IF;
    IF keys > 0 THEN
        INSERT INTO leasehold.answers (scope, fingerprint, event_no, at, answer, number, fences)
        SELECT ask.scope, ask.fingerprint, event.no, now_at, ask.answer, event.version + ask.place,
            CASE WHEN of_seats THEN ARRAY[ask.fence] ELSE '{}' END
        FROM unnest(scopes, fingerprints, answers, new_fences) WITH ORDINALITY
            AS ask (scope, fingerprint, answer, fence, place)
        WHERE ask.scope IS NOT NULL;
    END IF;
    -- Last of all, and under the lock that was taken first of all.
    UPDATE leasehold.events AS known SET
        version = known.version + holds, last_at = now_at,
        seats_free = known.seats_free - cardinality(seat_nos), seats_held = known.seats_held + cardinality(seat_nos)
    WHERE known.no = event.no;
    RETURN QUERY SELECT ask.place::integer, 0::smallint, now_at, event.version + ask.place,
            CASE WHEN of_seats THEN ARRAY[ask.fence] END, NULL::integer[]
        FROM unnest(ids, new_fences) WITH ORDINALITY AS ask (id, fence, place);
END $$;
