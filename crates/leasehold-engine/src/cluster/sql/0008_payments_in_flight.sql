-- 0008: the most payments of an event that may be in progress at a time. They are counted when one begins, under the
-- event's lock; there is no counter that could be wrong.

ALTER TABLE leasehold.events ADD COLUMN payments_in_flight_max bigint NOT NULL DEFAULT 0;
CREATE INDEX holds_paying ON leasehold.holds (event_no) WHERE state = 1;

-- write_v2 is write_v1 with this rule.
CREATE FUNCTION leasehold.write_v2(images json) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM leasehold.write_v1(images);
    IF images -> 'events' IS NOT NULL THEN
        UPDATE leasehold.events AS known SET payments_in_flight_max = event.payments_in_flight_max
        FROM json_populate_recordset(NULL::leasehold.events, images -> 'events') AS event
        WHERE known.no = event.no AND known.payments_in_flight_max <> event.payments_in_flight_max;
    END IF;
END $$;

-- create_v2 is create_v1 with this rule.
CREATE FUNCTION leasehold.create_v2(
    in_id text, in_rules json, in_image bytea, seat_count integer,
    pool_ids text[], capacities integer[], events_max integer, log_rules json
) RETURNS TABLE (event_no integer, created_at bigint, id_taken boolean) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    SELECT * INTO event_no, created_at, id_taken FROM leasehold.create_v1(
        in_id, in_rules, in_image, seat_count, pool_ids, capacities, events_max, log_rules);
    UPDATE leasehold.events SET payments_in_flight_max = (in_rules ->> 'payments_in_flight_max')::bigint
        WHERE no = event_no;
    RETURN NEXT;
END $$;
