-- 0011: a hold's id belongs to one event.
--
-- write_v1 knows holds by their ids alone. The rules look at one event at a time, so they do not see that a new hold's id is one of
-- another event, of which it would take the row over. write_v3 is write_v2 with this rule, looked at behind the write: one that another
-- transaction made meanwhile has been waited for by then. The caller tries again, and finds it.
CREATE FUNCTION leasehold.write_v3(images json) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM leasehold.write_v2(images);
    PERFORM FROM json_populate_recordset(NULL::leasehold.holds, images -> 'holds') AS hold
        JOIN leasehold.holds AS known ON known.id = hold.id AND known.event_no <> hold.event_no;
    IF FOUND THEN
        RAISE 'the id of a hold is one of another event' USING ERRCODE = 'unique_violation';
    END IF;
END
$$;
