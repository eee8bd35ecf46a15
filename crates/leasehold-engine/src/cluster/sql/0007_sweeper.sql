-- 0007: one server at a time sweeps the ledger, by a lease; the ledger knows the highest fence that such a lease had.

ALTER TABLE leasehold.ledger ADD COLUMN sweeper_fence bigint NOT NULL DEFAULT 0;

-- fence_v1 comes last in a sweep, before its commit: it ends the transaction of a sweeper whose lease has passed on, and
-- of two at a time the later one waits here until the earlier one has committed. After this nothing is locked any more.
CREATE FUNCTION leasehold.fence_v1(in_fence bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    known bigint;
BEGIN
    SELECT sweeper_fence INTO known FROM leasehold.ledger FOR UPDATE;
    IF known > in_fence THEN
        RAISE EXCEPTION 'a later sweeper has been at work' USING ERRCODE = 'LH001';
    END IF;
    IF known < in_fence THEN
        UPDATE leasehold.ledger SET sweeper_fence = in_fence;
    END IF;
END $$;
