-- 0001: the journal, which is the truth, and the tables that are written behind it.
--
-- journal: one row a commit. `entries` holds the after-images of everything the commit changed, in order.
-- sales: one row a sold seat, written in the same commit as its journal row. The key is the promise.
-- answers: what was answered under an idempotency key, written in the same commit too. `seq` numbers them as they came.
-- The other tables are projections for people and for a quick start. They may be behind the journal, never ahead.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE journal (
    last_seq  INTEGER PRIMARY KEY,
    first_seq INTEGER NOT NULL CHECK (first_seq <= last_seq),
    at_ms     INTEGER NOT NULL,
    entries   BLOB NOT NULL
) STRICT;

CREATE TABLE sales (
    event_no   INTEGER NOT NULL,
    seat_no    INTEGER NOT NULL,
    booking_no INTEGER NOT NULL,
    PRIMARY KEY (event_no, seat_no)
) STRICT, WITHOUT ROWID;

CREATE TABLE answers (
    seq         INTEGER PRIMARY KEY,
    scope       BLOB NOT NULL CHECK (length(scope) = 16),
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 16),
    at_ms       INTEGER NOT NULL,
    answer      BLOB NOT NULL
) STRICT;

CREATE TABLE events (
    event_no INTEGER PRIMARY KEY,
    id       TEXT NOT NULL UNIQUE,
    name     TEXT NOT NULL,
    state    TEXT NOT NULL CHECK (state IN ('open', 'closed')),
    version  INTEGER NOT NULL,
    rules    BLOB NOT NULL
) STRICT;

-- Written once an event: its layout is large and never changes.
CREATE TABLE venues (
    event_no INTEGER PRIMARY KEY,
    image    BLOB NOT NULL
) STRICT;

-- key: the event's number times 2^32, plus the seat's, because rows with one whole number for a key are the fastest.
-- A list after IN would be made into a table for every row that is checked.
CREATE TABLE seats (
    key      INTEGER PRIMARY KEY,
    event_no INTEGER NOT NULL,
    seat_no  INTEGER NOT NULL,
    seat     TEXT NOT NULL,
    state    TEXT NOT NULL CHECK (state = 'free' OR state = 'held' OR state = 'sold' OR state = 'blocked'),
    fence    INTEGER NOT NULL CHECK (fence >= 0)
) STRICT;

CREATE TABLE pools (
    event_no INTEGER NOT NULL,
    pool_no  INTEGER NOT NULL,
    pool     TEXT NOT NULL,
    capacity INTEGER NOT NULL,
    held     INTEGER NOT NULL CHECK (held >= 0),
    sold     INTEGER NOT NULL CHECK (sold >= 0),
    blocked  INTEGER NOT NULL CHECK (blocked >= 0),
    PRIMARY KEY (event_no, pool_no),
    CHECK (held + sold + blocked <= capacity)
) STRICT, WITHOUT ROWID;

CREATE TABLE holds (
    slot       INTEGER PRIMARY KEY,
    id         TEXT NOT NULL,
    event_no   INTEGER NOT NULL,
    state      TEXT NOT NULL,
    holder     TEXT,
    expires_at INTEGER NOT NULL,
    image      BLOB NOT NULL
) STRICT;

CREATE TABLE bookings (
    slot        INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    event_no    INTEGER NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('booked', 'cancelled')),
    holder      TEXT,
    payment_ref TEXT,
    order_ref   TEXT,
    image       BLOB NOT NULL
) STRICT;

CREATE TABLE blocks (
    slot     INTEGER PRIMARY KEY,
    id       TEXT NOT NULL,
    event_no INTEGER NOT NULL,
    image    BLOB NOT NULL
) STRICT;

CREATE TABLE payments (
    event_no    INTEGER NOT NULL,
    payment_ref TEXT NOT NULL,
    state       TEXT NOT NULL
                CHECK (state = 'pending' OR state = 'booked' OR state = 'refund_due' OR state = 'void'),
    image       BLOB NOT NULL,
    PRIMARY KEY (event_no, payment_ref)
) STRICT, WITHOUT ROWID;
