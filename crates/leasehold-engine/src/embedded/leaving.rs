//! A data file that is about to be moved into a ledger: everything that is in it, and the mark that it has left.

use std::path::Path;

use leasehold_core::{EventNo, State, Timestamp};

use super::load::{self, Loaded};
use super::store::{Departure, OpenError, Store, meta};
use crate::answer::get_answer;
use crate::{Change, Clock, IdempotencyKey, SecretKey};

/// See this module's documentation. No server can open the file meanwhile.
#[derive(Debug)]
pub(crate) struct Leaving {
    store: Store,
    pub(crate) key: SecretKey,
    pub(crate) state: State,
    /// The latest time in the file.
    pub(crate) last_time: Timestamp,
    /// The last changes, oldest first; of each event without a gap.
    pub(crate) history: Vec<(EventNo, Change)>,
    /// Whether it may have left before.
    pub(crate) departure: Departure,
}

/// An answer under an idempotency key, as it is kept.
#[derive(Debug)]
pub(crate) struct KeptAnswer {
    pub(crate) seq: u64,
    pub(crate) key: IdempotencyKey,
    pub(crate) event: EventNo,
    pub(crate) at: Timestamp,
    pub(crate) bytes: Vec<u8>,
}

impl Leaving {
    /// Opens a file that is there; what it lacks is not made.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        std::fs::metadata(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        let mut store = Store::open(path)?;
        let departure = store.departure();
        let departure = departure.map_err(|source| OpenError::Sqlite { path: path.to_owned(), source })?;
        if departure == Departure::Moved {
            return Err(OpenError::Moved { path: path.to_owned() });
        }
        let (key, epoch) = store.identity(Clock::system().now())?;
        store.quick_check().join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let Loaded { state, last_time, history, .. } = load::load(&store.connection, path, epoch)?;
        // A key that was used again after its day may still have its old answer: in a ledger it has one.
        let superseded = "DELETE FROM answers WHERE seq NOT IN (SELECT max(seq) FROM answers GROUP BY scope)";
        store
            .connection
            .execute(superseded, [])
            .map_err(|source| OpenError::Sqlite { path: path.to_owned(), source })?;
        Ok(Self { store, key, state, last_time, history, departure })
    }

    /// The key of a file, also while a server uses it.
    pub(crate) fn key_of(path: &Path) -> Result<SecretKey, OpenError> {
        let at = |source| OpenError::Sqlite { path: path.to_owned(), source };
        let reader = Store::reader(path).map_err(at)?;
        let key = meta::<[u8; 32]>(&reader, "secret_key").map_err(at)?;
        let damaged =
            || OpenError::Damaged { path: path.to_owned(), what: "it has no secret key".to_owned() };
        key.map(SecretKey::from_bytes).ok_or_else(damaged)
    }

    /// Some of the remembered answers, after the one with this number.
    pub(crate) fn answers_after(&self, seq: u64, count: u32) -> Result<Vec<KeptAnswer>, OpenError> {
        let read = || -> rusqlite::Result<Vec<KeptAnswer>> {
            let sql = "SELECT seq, scope, fingerprint, at_ms, answer FROM answers WHERE seq > ?1 ORDER BY seq LIMIT ?2";
            let mut statement = self.store.connection.prepare_cached(sql)?;
            let rows = statement.query_map((seq, count), |row| {
                let (at, bytes) = (Timestamp::from_millis(row.get(3)?), row.get::<_, Vec<u8>>(4)?);
                let answer = get_answer(&bytes, at).map_err(|error| {
                    rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Blob, error.into())
                })?;
                let scope = u128::from_be_bytes(row.get(1)?);
                let fingerprint = u128::from_be_bytes(row.get(2)?);
                let key = IdempotencyKey { scope, fingerprint };
                Ok(KeptAnswer { seq: row.get(0)?, key, event: answer.event, at, bytes })
            })?;
            rows.collect()
        };
        read().map_err(|source| OpenError::Sqlite { path: self.store.path.clone(), source })
    }

    /// Says in the file whether everything has left it.
    pub(crate) fn mark(&self, departure: Departure) -> Result<(), OpenError> {
        let marked = self.store.set_departure(departure);
        marked.map_err(|source| OpenError::Sqlite { path: self.store.path.clone(), source })
    }
}
