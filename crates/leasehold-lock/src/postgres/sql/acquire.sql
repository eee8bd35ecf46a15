-- Taking names. Run after schema.sql, or alone in a database that an older version has made: it locks no table, so it is
-- in nobody's way.

-- acquire_v2: takes all of the names for the owner, or none.
--
-- Arguments: the names in order, the owner, the length of the lease, whether to stand in line, how long a waiter
-- is believed to be there, how many may stand in line. Result: the fences in the order of the names; or the name
-- that is taken, how long it is at most, and how many are ahead in line
-- (nothing, when there is no room in it).
CREATE OR REPLACE FUNCTION leasehold_locks.acquire_v2(
    in_names text[], in_owner text, ttl_ms bigint, in_line boolean, alive_ms bigint, line_max bigint
) RETURNS TABLE (fences bigint[], busy text, remaining_ms bigint, ahead bigint) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now_at timestamptz;
    until timestamptz;
    wanted text;
    holder leasehold_locks.leases;
    first record;
    before bigint;
    issued bigint;
    all_issued bigint[] := '{}';
BEGIN
    PERFORM leasehold_locks.enter_v1(in_names);
    now_at := clock_timestamp();
    until := now_at + ttl_ms * interval '1 millisecond';
    FOREACH wanted IN ARRAY in_names LOOP
        SELECT * INTO holder FROM leasehold_locks.leases WHERE name = wanted AND expires_at > now_at;
        CONTINUE WHEN holder.owner = in_owner;
        SELECT * INTO first
            FROM leasehold_locks.first_in_line_v1(wanted, now_at - alive_ms * interval '1 millisecond');
        -- Whoever does not stand in line still lets those go first who do.
        CONTINUE WHEN holder.owner IS NULL AND (first.owner IS NULL OR (in_line AND first.owner = in_owner));
        IF in_line THEN
            -- Whoever stands in a line that is full keeps the place.
            UPDATE leasehold_locks.waiting SET heard_of = now_at WHERE name = wanted AND owner = in_owner;
            IF NOT FOUND THEN
                INSERT INTO leasehold_locks.waiting (name, owner, heard_of)
                    SELECT wanted, in_owner, now_at
                    WHERE (SELECT count(*) FROM leasehold_locks.waiting WHERE name = wanted) < line_max;
            END IF;
            SELECT (SELECT count(*) FROM leasehold_locks.waiting AS other
                    WHERE other.name = wanted AND other.place < mine.place)
                INTO before
                FROM leasehold_locks.waiting AS mine WHERE mine.name = wanted AND mine.owner = in_owner;
        END IF;
        RETURN QUERY SELECT NULL::bigint[], wanted,
            ceil(extract(epoch FROM holder.expires_at - now_at) * 1000)::bigint, before;
        RETURN;
    END LOOP;
    FOREACH wanted IN ARRAY in_names LOOP
        DELETE FROM leasehold_locks.waiting WHERE name = wanted AND owner = in_owner;
        -- Of the owner's own lease, which it asks for again, the fence and the beginning stay.
        INSERT INTO leasehold_locks.leases AS known (name, owner, fence, since, expires_at)
        VALUES (wanted, in_owner, nextval('leasehold_locks.fences'), now_at, until)
        ON CONFLICT (name) DO UPDATE SET
            owner = excluded.owner, expires_at = excluded.expires_at,
            fence = CASE WHEN known.expires_at > now_at THEN known.fence ELSE excluded.fence END,
            since = CASE WHEN known.expires_at > now_at THEN known.since ELSE excluded.since END
        RETURNING known.fence INTO issued;
        all_issued := all_issued || issued;
    END LOOP;
    -- Names that nobody asks for again must not stay for ever. Nothing is waited for after this.
    DELETE FROM leasehold_locks.leases WHERE name IN (
        SELECT name FROM leasehold_locks.leases WHERE expires_at <= now_at LIMIT 16 FOR UPDATE SKIP LOCKED);
    DELETE FROM leasehold_locks.waiting WHERE place IN (
        SELECT place FROM leasehold_locks.waiting WHERE heard_of < now_at - interval '1 hour'
        LIMIT 16 FOR UPDATE SKIP LOCKED);
    RETURN QUERY SELECT all_issued, NULL::text, NULL::bigint, NULL::bigint;
END $$;

-- acquire_v1: the same, for programs of an older version.
CREATE OR REPLACE FUNCTION leasehold_locks.acquire_v1(
    in_names text[], in_owner text, ttl_ms bigint, in_line boolean, alive_ms bigint, line_max bigint
) RETURNS TABLE (fences bigint[], busy text, remaining_ms bigint, ahead bigint) LANGUAGE sql VOLATILE AS $$
    SELECT * FROM leasehold_locks.acquire_v2(in_names, in_owner, ttl_ms, in_line, alive_ms, line_max)
$$;
