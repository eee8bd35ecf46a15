-- 0001: the ledger. Everything that is known, one row a thing, times in milliseconds since the Unix epoch.
--
-- The row of an event is its lock and its clock: every transaction that changes anything of an event first
-- locks that row, then reads the time, then decides. So the changes of one event are in one order, which is
-- that of `version`, and the log has no gaps for a reader.

CREATE TABLE leasehold.ledger (
    -- One row.
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    -- Tells this ledger's entries at a gate from another one's.
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    -- Raised by whoever restores a backup: fences of a later epoch are higher than all earlier ones.
    epoch integer NOT NULL DEFAULT 1 CHECK (epoch > 0),
    -- A code of the key that hold secrets are made with. A server with another key is refused.
    key_check bytea,
    -- Events there are. Locked by whoever creates one, so that their numbers have no gaps.
    events integer NOT NULL DEFAULT 0
);
INSERT INTO leasehold.ledger DEFAULT VALUES;

CREATE TABLE leasehold.events (
    no integer PRIMARY KEY,
    id text NOT NULL UNIQUE,
    closed boolean NOT NULL DEFAULT false,
    -- The number of the last log entry.
    version bigint NOT NULL,
    -- Its time. No later entry has an earlier one, whatever the machine's clock does.
    last_at bigint NOT NULL,
    created_at bigint NOT NULL,
    -- The version at which the rules last changed.
    rules_version bigint NOT NULL,
    hold_ttl bigint NOT NULL,
    hold_total_max bigint NOT NULL,
    extends_max bigint NOT NULL,
    payment_max bigint NOT NULL,
    units_per_holder_max bigint NOT NULL,
    accept_late_payment boolean NOT NULL,
    keep_at_deadline boolean NOT NULL,
    seats_free integer NOT NULL CHECK (seats_free >= 0),
    seats_held integer NOT NULL CHECK (seats_held >= 0),
    seats_sold integer NOT NULL CHECK (seats_sold >= 0),
    seats_blocked integer NOT NULL CHECK (seats_blocked >= 0)
) WITH (fillfactor = 20);

-- The part of an event that never changes: name, seats, pools' ids. Read once by each server.
CREATE TABLE leasehold.venues (
    event_no integer PRIMARY KEY REFERENCES leasehold.events,
    image bytea NOT NULL
);

-- Seats that had an owner at least once. A seat without a row is free, and its fence is 0.
CREATE TABLE leasehold.seats (
    event_no integer NOT NULL,
    seat_no integer NOT NULL,
    -- The highest fence issued for it.
    fence bigint NOT NULL,
    -- 0 free, 1 held, 2 sold, 3 blocked.
    status smallint NOT NULL CHECK (status BETWEEN 0 AND 3),
    -- The hold, booking or block that has it.
    owner uuid,
    PRIMARY KEY (event_no, seat_no),
    CHECK ((status = 0) = (owner IS NULL))
) WITH (fillfactor = 80);

CREATE TABLE leasehold.pools (
    event_no integer NOT NULL,
    pool_no integer NOT NULL,
    id text NOT NULL,
    capacity integer NOT NULL,
    held integer NOT NULL CHECK (held >= 0),
    sold integer NOT NULL CHECK (sold >= 0),
    blocked integer NOT NULL CHECK (blocked >= 0),
    PRIMARY KEY (event_no, pool_no),
    -- Counted stock is never oversold, whatever else is wrong.
    CHECK (held + sold + blocked <= capacity)
) WITH (fillfactor = 20);

CREATE TABLE leasehold.holds (
    id uuid PRIMARY KEY,
    -- Its place in lists.
    place bigint GENERATED ALWAYS AS IDENTITY,
    event_no integer NOT NULL,
    -- The number of the log entry that created it.
    number bigint NOT NULL,
    -- 0 held, 1 confirming, 2 confirmed, 3 released, 4 expired, 5 revoked.
    state smallint NOT NULL,
    version integer NOT NULL,
    extends integer NOT NULL,
    -- Three numbers an item: 0, seat, fence; or 1, pool, quantity.
    items bigint[] NOT NULL,
    holder text,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    hard_deadline bigint NOT NULL,
    life_end bigint NOT NULL,
    ended_at bigint,
    payment_ref text,
    payment_deadline bigint,
    payment_remaining bigint,
    payment_kept boolean,
    booking uuid,
    -- When it ends by itself. Absent when it does not, or has ended.
    live_until bigint,
    -- The payment's deadline of a live hold that stays when it is late.
    kept_until bigint,
    -- Of a hold that ended and is forgotten some day: 0 without payments, 1 with void ones.
    retention smallint
) WITH (fillfactor = 80);
CREATE INDEX holds_due ON leasehold.holds (event_no, live_until) WHERE live_until IS NOT NULL;
CREATE INDEX holds_live ON leasehold.holds (event_no, place) WHERE state <= 1;
CREATE INDEX holds_ended ON leasehold.holds (retention, ended_at) WHERE retention IS NOT NULL;
CREATE INDEX holds_kept ON leasehold.holds (kept_until) WHERE kept_until IS NOT NULL;

CREATE TABLE leasehold.bookings (
    id uuid PRIMARY KEY,
    event_no integer NOT NULL,
    number bigint NOT NULL,
    hold uuid NOT NULL,
    cancelled boolean NOT NULL,
    items bigint[] NOT NULL,
    holder text,
    payment_ref text,
    order_ref text,
    revived boolean NOT NULL,
    booked_at bigint NOT NULL,
    cancelled_at bigint
);
CREATE INDEX bookings_of_event ON leasehold.bookings (event_no) WHERE NOT cancelled;

-- Live sales. The key is what "never sold twice" rests on.
CREATE TABLE leasehold.sales (
    event_no integer NOT NULL,
    seat_no integer NOT NULL,
    booking uuid NOT NULL,
    PRIMARY KEY (event_no, seat_no)
);

CREATE TABLE leasehold.blocks (
    id uuid PRIMARY KEY,
    event_no integer NOT NULL,
    number bigint NOT NULL,
    items bigint[] NOT NULL,
    reason text,
    created_at bigint NOT NULL
);
CREATE INDEX blocks_of_event ON leasehold.blocks (event_no);

CREATE TABLE leasehold.payments (
    event_no integer NOT NULL,
    reference text NOT NULL,
    hold uuid NOT NULL,
    number bigint NOT NULL,
    -- 0 pending, 1 booked, 2 refund due, 3 void.
    state smallint NOT NULL,
    PRIMARY KEY (event_no, reference)
);
CREATE INDEX payments_of_hold ON leasehold.payments (hold);
CREATE INDEX payments_due ON leasehold.payments (event_no) WHERE state = 2;

-- Units that each holder holds and owns; only of events whose rules limit them.
CREATE TABLE leasehold.holders (
    event_no integer NOT NULL,
    holder text NOT NULL,
    units bigint NOT NULL CHECK (units > 0),
    PRIMARY KEY (event_no, holder)
) WITH (fillfactor = 50);

-- What happened, in order: the stream, and the outbox of whoever passes changes on.
CREATE TABLE leasehold.log (
    event_no integer NOT NULL,
    version bigint NOT NULL,
    at bigint NOT NULL,
    -- The place of the kind in the list of kinds, which only grows.
    kind smallint NOT NULL,
    -- Two numbers a seat: seat, and status after the entry.
    seats integer[],
    -- Five numbers a pool: pool, and capacity, held, sold, blocked after the entry.
    pools integer[],
    -- The rules after an entry that changed them.
    rules json,
    -- The hold it is about, also when it is about the hold's booking; or the block.
    subject uuid,
    PRIMARY KEY (event_no, version)
);

-- Answers under idempotency keys, written with the effect.
CREATE TABLE leasehold.answers (
    scope uuid PRIMARY KEY,
    fingerprint uuid NOT NULL,
    event_no integer NOT NULL,
    at bigint NOT NULL,
    answer bytea NOT NULL,
    -- Of a new hold: its number and its seats' fences, which the ledger chose and the bytes do not have.
    number bigint,
    fences bigint[],
    -- Of a sale that the ledger made: its booking, in place of the bytes.
    booking uuid
);
CREATE INDEX answers_by_age ON leasehold.answers (at);

-- The ledger's time: the only clock that decides.
CREATE FUNCTION leasehold.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
    'SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint';

-- The seats in a list of items.
CREATE FUNCTION leasehold.seats_of(items bigint[]) RETURNS SETOF integer LANGUAGE sql IMMUTABLE AS
    'SELECT items[i + 1]::integer FROM generate_series(1, cardinality(items), 3) AS i WHERE items[i] = 0';
