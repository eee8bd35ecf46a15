//! The data file: who may open it, how it is set up, which version it has.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold_core::{Epoch, Timestamp};
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use crate::SecretKey;

/// Earlier versions can lose committed data when a write meets a checkpoint.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// How long others may go on reading before a start gives up.
const LOG_WAIT_MAX: Duration = Duration::from_secs(5);

/// The schema, a step at a time. A step that was shipped is never edited.
const MIGRATIONS: [&str; 1] = [include_str!("schema/0001_initial.sql")];

/// Why a data file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{} is in use by another process; one server owns a data file at a time", path.display())]
    InUse {
        /// The data file.
        path: PathBuf,
    },
    /// Somebody reads it, so what is in its log cannot be made safe.
    #[error("{} is being read by another process, as by a backup or a check; start again when that is done", path.display())]
    Read {
        /// The data file.
        path: PathBuf,
    },
    /// The file system said no.
    #[error("cannot open {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// SQLite said no.
    #[error("cannot use {} as a data file", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: rusqlite::Error,
    },
    /// A newer program wrote it.
    #[error("{} has schema {found}, this program knows {known}: use a newer program", path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: usize,
        /// The newest version known here.
        known: usize,
    },
    /// What was in it is in a ledger now.
    #[error("{} was moved into a ledger: start the server with --ledger", path.display())]
    Moved {
        /// The file.
        path: PathBuf,
    },
    /// What is in it may be in a ledger.
    #[error("{} may be in a ledger: run `leasehold migrate` to the same ledger again, which finds out", path.display())]
    Moving {
        /// The file.
        path: PathBuf,
    },
    /// What is in it contradicts itself.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// This program was built with an SQLite that has a known fault.
    #[error("SQLite {0} is too old: it can lose committed data")]
    SqliteTooOld(&'static str),
}

/// An open data file, owned by this process alone.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) path: PathBuf,
    pub(crate) connection: Connection,
    /// Held for as long as the store is open; the system lets go of them when the process dies. The second one is the data file
    /// itself, by whatever name. It is closed behind the connection: closing it takes SQLite's own locks away.
    _locks: [File; 2],
}

impl Store {
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        if rusqlite::version_number() < SQLITE_VERSION_MIN {
            return Err(OpenError::SqliteTooOld(rusqlite::version()));
        }
        // One file may have several names; its lock must have one.
        private(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        let path = &path.canonicalize().map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        let locks = [lock(path)?, lock_file(path)?];
        let at = |source| OpenError::Sqlite { path: path.to_owned(), source };
        let mut connection = Connection::open(path).map_err(at)?;
        set_up(&connection).map_err(at)?;
        if !empty_log(&connection).map_err(at)? {
            return Err(OpenError::Read { path: path.to_owned() });
        }
        migrate(&mut connection, path, &MIGRATIONS)?;
        Ok(Self { path: path.to_owned(), connection, _locks: locks })
    }

    /// The same for a server: a file whose contents are in a ledger, or may be, is refused.
    pub(crate) fn open_to_serve(path: &Path) -> Result<Self, OpenError> {
        let store = Self::open(path)?;
        let path = || store.path.clone();
        match store.departure().map_err(|source| OpenError::Sqlite { path: path(), source })? {
            Departure::Stays => Ok(store),
            Departure::Moving(_) => Err(OpenError::Moving { path: path() }),
            Departure::Moved => Err(OpenError::Moved { path: path() }),
        }
    }

    /// Whether its contents have left it.
    pub(crate) fn departure(&self) -> rusqlite::Result<Departure> {
        Ok(match meta::<Vec<u8>>(&self.connection, MOVED_MARK)? {
            None => Departure::Stays,
            Some(mark) => match mark.as_slice().try_into() {
                Ok(ledger) => Departure::Moving(u128::from_be_bytes(ledger)),
                Err(_) => Departure::Moved,
            },
        })
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn set_departure(&self, departure: Departure) -> rusqlite::Result<()> {
        match departure {
            Departure::Stays => {
                self.connection.execute("DELETE FROM meta WHERE name = ?1", [MOVED_MARK]).map(drop)
            }
            Departure::Moving(ledger) => set_meta(&self.connection, MOVED_MARK, &ledger.to_be_bytes()),
            Departure::Moved => set_meta(&self.connection, MOVED_MARK, &[1]),
        }
    }

    /// A connection that can only read, beside the writer's.
    pub(crate) fn reader(path: &Path) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        Ok(connection)
    }

    /// Looks for damage in the file's structure, on a connection and a thread of its own.
    pub(crate) fn quick_check(&self) -> JoinHandle<Result<(), OpenError>> {
        let path = self.path.clone();
        std::thread::spawn(move || {
            let check = |path: &Path| -> rusqlite::Result<String> {
                Self::reader(path)?.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            };
            match check(&path) {
                Ok(verdict) if verdict == "ok" => Ok(()),
                Ok(what) => Err(OpenError::Damaged { path, what }),
                Err(source) => Err(OpenError::Sqlite { path, source }),
            }
        })
    }

    /// The server's key and the epoch. A new file and one that is a backup's copy start a new epoch.
    pub(crate) fn identity(&mut self, now: Timestamp) -> Result<(SecretKey, Epoch), OpenError> {
        let path = self.path.clone();
        self.try_identity(now).map_err(|source| OpenError::Sqlite { path, source })
    }

    fn try_identity(&mut self, now: Timestamp) -> rusqlite::Result<(SecretKey, Epoch)> {
        let transaction = self.connection.transaction()?;
        let key = match meta::<[u8; 32]>(&transaction, "secret_key")? {
            Some(bytes) => SecretKey::from_bytes(bytes),
            None => {
                let key = SecretKey::random();
                set_meta(&transaction, "secret_key", key.as_bytes())?;
                key
            }
        };
        let known = meta::<[u8; 4]>(&transaction, "epoch")?.map(u32::from_le_bytes);
        let is_copy = meta::<[u8; 1]>(&transaction, COPY_MARK)?.is_some();
        let epoch = match known {
            Some(epoch) if is_copy => Epoch(epoch).restored(now),
            Some(epoch) => Epoch(epoch),
            None => Epoch::first(now),
        };
        set_meta(&transaction, "epoch", &epoch.0.to_le_bytes())?;
        transaction.execute("DELETE FROM meta WHERE name = ?1", [COPY_MARK])?;
        transaction.commit()?;
        Ok((key, epoch))
    }
}

/// Stands in a file whose contents are in a ledger, or may be, so that nothing is sold in both.
const MOVED_MARK: &str = "moved";

/// Whether a file's contents have left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    Stays,
    /// They were about to be committed in the ledger with this id.
    Moving(u128),
    Moved,
}

/// Stands in every backup, so that a server that is started on it knows that time was turned back.
const COPY_MARK: &str = "copy";

/// Writes a consistent copy while a server goes on writing, and marks it as one.
///
/// A server that is started on the copy begins a new epoch: its fences are higher than all that were issued.
pub fn backup_file(from: &Path, to: &Path) -> Result<(), String> {
    if to.exists() {
        return Err(format!("{} exists already", to.display()));
    }
    let target = to.to_str().ok_or("the path must be UTF-8")?;
    // Under another name until it is marked: a copy that was cut short is never taken for a whole one.
    let unfinished = format!("{target}.unfinished");
    let copy = || -> rusqlite::Result<()> {
        private(Path::new(&unfinished))
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        Store::reader(from)?.execute("VACUUM INTO ?1", [&unfinished])?;
        let copy = Connection::open(&unfinished)?;
        copy.execute_batch("PRAGMA synchronous = FULL")?;
        set_meta(&copy, COPY_MARK, &[1])?;
        copy.close().map_err(|(_, error)| error)
    };
    let copied = copy().map_err(|error| error.to_string());
    let copied = copied.and_then(|()| put_in_place(&unfinished, to).map_err(|error| error.to_string()));
    if copied.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    copied
}

/// Gives a finished copy its name, for good: a name is on disk when its folder is.
fn put_in_place(unfinished: &str, to: &Path) -> std::io::Result<()> {
    std::fs::rename(unfinished, to)?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Creates an empty file that only its owner can read, because the server's key will be in it. One that is there is not opened:
/// closing it would take the locks of a store that this process has open already.
fn private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    if path.try_exists()? {
        return Ok(());
    }
    File::options().create(true).append(true).mode(0o600).open(path).map(drop)
}

pub(crate) fn meta<T: rusqlite::types::FromSql>(
    connection: &Connection,
    name: &str,
) -> rusqlite::Result<Option<T>> {
    connection.query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| row.get(0)).optional()
}

pub(crate) fn set_meta(connection: &Connection, name: &str, value: &[u8]) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?;
    statement.execute((name, value)).map(drop)
}

/// SQLite's own lock is released when any connection of the process closes, so the lock is a file of its own.
fn lock(path: &Path) -> Result<File, OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let lock_path = PathBuf::from(name);
    let io = |source| OpenError::Io { path: lock_path.clone(), source };
    let file = File::options().create(true).truncate(false).write(true).open(&lock_path).map_err(io)?;
    try_lock(&file, path).map(|()| file)
}

/// The lock beside it has a name, and may be removed or be another one for another name of the file. This one is the file's own; SQLite
/// uses locks of another kind.
fn lock_file(path: &Path) -> Result<File, OpenError> {
    let file = File::open(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
    match try_lock(&file, path) {
        Ok(()) => Ok(file),
        Err(error) => {
            // It may be this process that has it, whose other locks closing it would take away.
            std::mem::forget(file);
            Err(error)
        }
    }
}

fn try_lock(file: &File, path: &Path) -> Result<(), OpenError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(OpenError::Io { path: path.to_owned(), source }),
    }
}

/// Moves what an earlier process left in the log into the file, and begins the log anew; false while somebody else reads.
///
/// A sync of the log may have failed before that process ended. The system then has what was not written in its memory as if it
/// were, so it is read like the rest, but is not on the disk and never will be; and with it everything that is written behind it
/// would be lost when the power fails.
fn empty_log(connection: &Connection) -> rusqlite::Result<bool> {
    connection.busy_timeout(LOG_WAIT_MAX)?;
    let is_busy: bool = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    Ok(!is_busy)
}

fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(64);
    connection.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA cache_size = -16384;
         PRAGMA temp_store = MEMORY;
         PRAGMA foreign_keys = ON;",
    )
}

/// Takes the steps that the file has not seen, each in a transaction together with the version it leads to.
fn migrate(connection: &mut Connection, path: &Path, steps: &[&str]) -> Result<(), OpenError> {
    let at = |source| OpenError::Sqlite { path: path.to_owned(), source };
    let found: usize = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(at)?;
    if found > steps.len() {
        return Err(OpenError::TooNew { path: path.to_owned(), found, known: steps.len() });
    }
    for (version, sql) in steps.iter().enumerate().skip(found) {
        let transaction = connection.transaction().map_err(at)?;
        transaction.execute_batch(sql).map_err(at)?;
        transaction.pragma_update(None, "user_version", version + 1).map_err(at)?;
        transaction.commit().map_err(at)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rusqlite::types::Value;

    use super::*;

    #[test]
    fn a_commit_is_on_the_disk_before_it_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("a.db")).unwrap();
        let setting = |name: &str| {
            store.connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, Value>(0)).unwrap()
        };
        assert_eq!(setting("synchronous"), Value::Integer(2), "FULL");
        assert_eq!(setting("journal_mode"), Value::Text("wal".to_owned()));
    }

    /// Behind what a failed sync left there nothing new may stand.
    #[test]
    fn the_log_of_an_earlier_process_is_moved_into_the_file_before_anything_is_written() {
        let (folder, crashed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (path, left) = (folder.path().join("a.db"), crashed.path().join("a.db"));
        let store = Store::open(&path).unwrap();
        set_meta(&store.connection, "mark", b"here").unwrap();
        for ending in ["db", "db-wal"] {
            std::fs::copy(path.with_extension(ending), left.with_extension(ending)).unwrap();
        }
        let log = left.with_extension("db-wal");
        assert!(std::fs::metadata(&log).unwrap().len() > 0, "there is nothing in the log");

        // Whoever reads keeps the log from beginning anew.
        let reader = Store::reader(&left).unwrap();
        reader.execute_batch("BEGIN; SELECT * FROM meta").unwrap();
        assert!(matches!(Store::open(&left), Err(OpenError::Read { .. })));
        drop(reader);
        let store = Store::open(&left).unwrap();
        assert_eq!(std::fs::metadata(&log).unwrap().len(), 0);
        assert_eq!(meta::<Vec<u8>>(&store.connection, "mark").unwrap().as_deref(), Some(&b"here"[..]));
    }

    #[test]
    fn an_older_file_takes_the_steps_it_lacks_once_each_and_wholly() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let mut connection = Connection::open(&path).unwrap();
        let first = "CREATE TABLE seats (name TEXT); INSERT INTO seats VALUES ('A-1');";
        let second = "ALTER TABLE seats ADD COLUMN price INTEGER; INSERT INTO seats VALUES ('A-2', 5);";
        let broken = "ALTER TABLE seats ADD COLUMN price INTEGER; INSERT INTO chairs VALUES (1);";
        let standing = |connection: &Connection| -> (usize, i64, usize) {
            let version = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
            let rows = connection.query_row("SELECT count(*) FROM seats", [], |row| row.get(0)).unwrap();
            (version, rows, connection.prepare("SELECT * FROM seats").unwrap().column_count())
        };
        migrate(&mut connection, &path, &[first]).unwrap();
        assert_eq!(standing(&connection), (1, 1, 1));
        let failed = migrate(&mut connection, &path, &[first, broken]);
        assert!(matches!(failed, Err(OpenError::Sqlite { .. })), "{failed:?}");
        assert_eq!(standing(&connection), (1, 1, 1), "nothing of a step that failed");
        for _ in 0..2 {
            migrate(&mut connection, &path, &[first, second]).unwrap();
            assert_eq!(standing(&connection), (2, 2, 2));
        }
        let older = migrate(&mut connection, &path, &[first]);
        assert!(matches!(older, Err(OpenError::TooNew { found: 2, known: 1, .. })), "{older:?}");
    }
}
