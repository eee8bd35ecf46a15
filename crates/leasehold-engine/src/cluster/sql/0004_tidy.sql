-- 0004: what keeps the ledger from growing for ever. Every server calls these now and then, in small pieces; one
-- of them at a time does it.

-- forget_v1 forgets holds that ended: older than age_max, or more than count_max of the same kind. Says how many.
CREATE FUNCTION leasehold.forget_v1(kind smallint, age_max bigint, count_max bigint, piece integer)
RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now_at bigint := leasehold.now_ms();
    old uuid[];
    gone integer;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7310579420361523042) THEN
        RETURN 0;
    END IF;
    SELECT coalesce(array_agg(id), '{}') INTO old FROM (
        (SELECT id FROM leasehold.holds WHERE retention = kind AND ended_at <= now_at - age_max
            ORDER BY ended_at LIMIT piece)
        UNION
        (SELECT id FROM leasehold.holds WHERE retention = kind ORDER BY ended_at DESC OFFSET count_max LIMIT piece)
    ) AS holds;
    -- A late payment may come for one of them at this moment; after the lock it has come or finds nothing.
    PERFORM 1 FROM leasehold.events
        WHERE no IN (SELECT event_no FROM leasehold.holds WHERE id = ANY (old)) ORDER BY no FOR UPDATE;
    DELETE FROM leasehold.payments
        WHERE hold IN (SELECT id FROM leasehold.holds WHERE id = ANY (old) AND retention = kind);
    DELETE FROM leasehold.holds WHERE id = ANY (old) AND retention = kind;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END $$;

-- trim_v1 deletes log entries but the last log_max of each event, and answers that are too old or too many.
CREATE FUNCTION leasehold.trim_v1(log_max bigint, answers_age_max bigint, answers_max bigint, piece integer)
RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now_at bigint := leasehold.now_ms();
    entries integer;
    answers integer;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7310579420361523043) THEN
        RETURN 0;
    END IF;
    DELETE FROM leasehold.log WHERE (event_no, version) IN (
        SELECT old.event_no, old.version FROM leasehold.events AS event CROSS JOIN LATERAL (
            SELECT event_no, version FROM leasehold.log
            WHERE event_no = event.no AND version <= event.version - log_max
            ORDER BY version LIMIT piece
        ) AS old LIMIT piece
    );
    GET DIAGNOSTICS entries = ROW_COUNT;
    DELETE FROM leasehold.answers WHERE scope IN (
        (SELECT scope FROM leasehold.answers WHERE at <= now_at - answers_age_max ORDER BY at LIMIT piece)
        UNION
        (SELECT scope FROM leasehold.answers ORDER BY at DESC OFFSET answers_max LIMIT piece)
    );
    GET DIAGNOSTICS answers = ROW_COUNT;
    RETURN entries + answers;
END $$;
