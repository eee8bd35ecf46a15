-- Locks of the processes of one machine. Times are nanoseconds since the machine was started, so nobody
-- can set them; leases of an earlier start are over. Run at every opening; changes nothing the second time.
CREATE TABLE IF NOT EXISTS lock_boot (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    boot_id TEXT NOT NULL,
    -- Counts the starts of the machine. Fences of a later one are higher than all before.
    epoch INTEGER NOT NULL CHECK (epoch > 0),
    last_count INTEGER NOT NULL CHECK (last_count BETWEEN 0 AND 4294967295)
);
CREATE TABLE IF NOT EXISTS leases (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    fence INTEGER NOT NULL UNIQUE,
    since INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS leases_by_end ON leases (expires_at);
CREATE TABLE IF NOT EXISTS waiting (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    heard_of INTEGER NOT NULL,
    UNIQUE (name, owner)
);
CREATE INDEX IF NOT EXISTS waiting_by_sign ON waiting (heard_of);
