-- Locks in a PostgreSQL database. Run by the first who finds a part of it missing; several may do so at once.
--
-- What takes and what gives back a name first enters it (enter_v1), so one of them is at work on a name at a time.
-- Whatever touches a lease locks its row, in the order of the names, and reads the clock afterwards: what it
-- decides on is what everybody before has left. Functions carry a version: two versions may run side by side.

CREATE SCHEMA IF NOT EXISTS leasehold_locks;

-- Every fence is higher than all before, of whichever name, and stays below 2^53.
CREATE SEQUENCE IF NOT EXISTS leasehold_locks.fences MAXVALUE 9007199254740991;

CREATE TABLE IF NOT EXISTS leasehold_locks.leases (
    -- Compared byte by byte.
    name text COLLATE "C" PRIMARY KEY,
    owner text NOT NULL,
    fence bigint NOT NULL,
    since timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS leases_by_end ON leasehold_locks.leases (expires_at);

-- Those who wait in line.
CREATE TABLE IF NOT EXISTS leasehold_locks.waiting (
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    owner text NOT NULL,
    -- When the waiter last asked. One that does not ask any more has gone away.
    heard_of timestamptz NOT NULL,
    UNIQUE (name, owner)
);
CREATE INDEX IF NOT EXISTS waiting_by_sign ON leasehold_locks.waiting (heard_of);

-- enter_v1: alone with these names until the transaction ends. Two names may share a lock, which only costs time.
-- The first number of the lock is the word "lock" in ASCII.
CREATE OR REPLACE FUNCTION leasehold_locks.enter_v1(in_names text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1819239275, key)
        FROM (SELECT DISTINCT hashtext(name) AS key FROM unnest(in_names) AS name ORDER BY key) AS keys;
    PERFORM 1 FROM leasehold_locks.leases WHERE name = ANY (in_names) ORDER BY name FOR UPDATE;
END $$;

-- first_in_line_v1: the place and owner of the first who was heard of lately. Whoever was not is dropped.
CREATE OR REPLACE FUNCTION leasehold_locks.first_in_line_v1(in_name text, heard_since timestamptz)
RETURNS TABLE (place bigint, owner text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM leasehold_locks.waiting WHERE name = in_name AND heard_of < heard_since;
    RETURN QUERY SELECT place, owner FROM leasehold_locks.waiting WHERE name = in_name ORDER BY place LIMIT 1;
END $$;

-- acquire_v1: takes all of the names for the owner, or none.
--
-- Arguments: the names in order, the owner, the length of the lease, whether to stand in line, how long a waiter
-- is believed to be there, how many may stand in line. Result: the fences in the order of the names; or the name
-- that is taken, how long it is at most, and how many are ahead in line.
CREATE OR REPLACE FUNCTION leasehold_locks.acquire_v1(
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
            INSERT INTO leasehold_locks.waiting (name, owner, heard_of)
                SELECT wanted, in_owner, now_at
                WHERE (SELECT count(*) FROM leasehold_locks.waiting WHERE name = wanted) < line_max
                ON CONFLICT (name, owner) DO UPDATE SET heard_of = excluded.heard_of;
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

-- renew_v1: lengthens leases that are still their owners'.
--
-- Arguments: one entry a name: the place of its lease in the list, the name, the owner, the length. Result: the
-- places of those whose every name was lengthened.
CREATE OR REPLACE FUNCTION leasehold_locks.renew_v1(
    places integer[], in_names text[], owners text[], ttls_ms bigint[]
) RETURNS SETOF integer LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now_at timestamptz;
BEGIN
    PERFORM 1 FROM leasehold_locks.leases WHERE name = ANY (in_names) ORDER BY name FOR UPDATE;
    now_at := clock_timestamp();
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(places, in_names, owners, ttls_ms) AS asked (place, name, owner, ttl_ms)
    ), whole AS MATERIALIZED (
        SELECT place FROM asked LEFT JOIN leasehold_locks.leases AS lease
            ON lease.name = asked.name AND lease.owner = asked.owner AND lease.expires_at > now_at
        GROUP BY place HAVING bool_and(lease.name IS NOT NULL)
    ), renewed AS (
        UPDATE leasehold_locks.leases AS lease SET expires_at = now_at + asked.ttl_ms * interval '1 millisecond'
        FROM asked JOIN whole USING (place) WHERE lease.name = asked.name
    )
    SELECT place FROM whole;
END $$;

-- release_v1: gives back what is the owner's, its places in line as well, and wakes those who wait.
--
-- Arguments: the names, the owner, how long a waiter is believed to be there. Result: how many of the names were
-- the owner's. That it is not on the disk at once costs time after a crash, and nothing else.
CREATE OR REPLACE FUNCTION leasehold_locks.release_v1(in_names text[], in_owner text, alive_ms bigint)
RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    now_at timestamptz;
    wanted text;
    ended timestamptz;
    first record;
    released integer := 0;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM leasehold_locks.enter_v1(in_names);
    now_at := clock_timestamp();
    FOREACH wanted IN ARRAY in_names LOOP
        DELETE FROM leasehold_locks.waiting WHERE name = wanted AND owner = in_owner;
        ended := NULL;
        DELETE FROM leasehold_locks.leases WHERE name = wanted AND owner = in_owner RETURNING expires_at INTO ended;
        IF ended > now_at THEN
            released := released + 1;
        END IF;
        SELECT * INTO first
            FROM leasehold_locks.first_in_line_v1(wanted, now_at - alive_ms * interval '1 millisecond');
        IF first.place IS NOT NULL THEN
            PERFORM pg_notify('leasehold_locks', 'turn:' || first.place);
        ELSIF ended IS NOT NULL THEN
            PERFORM pg_notify('leasehold_locks', 'free:' || wanted);
        END IF;
    END LOOP;
    RETURN released;
END $$;
