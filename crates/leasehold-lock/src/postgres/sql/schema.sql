-- Locks in a PostgreSQL database. Run by the first who finds a part of it missing; several may do so at once.
--
-- What takes and what gives back a name first enters it (enter_v1), so one of them is at work on a name at a time.
-- Whatever touches a lease locks its row, in the order of the names, and reads the clock afterwards: what it
-- decides on is what everybody before has left. Functions carry a version: two versions may run side by side. What
-- takes names is in acquire.sql, which is run after this, and alone in a database of an older version.

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
