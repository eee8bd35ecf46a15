//! Locks in a SQLite file, for the processes of one machine.
//!
//! Time is the machine's time since its start, which all processes share and nobody can set. A restart of
//! the machine ends every lease, as it ends every holder, so a lease needs no disk; only the count of
//! restarts is written durably, and it stands in the high bits of every fence.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

mod table;
mod worker;

use worker::{Ask, Reply, Worker};

use crate::backend::{Attempt, Backend, Held, ListQuery, Order, Page, Released, Renewed, Request};
use crate::bells::{Bells, Watch};
use crate::clock::Clock;
use crate::error::StoreError;
use crate::lease::{Guarantee, Guarantees, LeaseView};
use crate::name::LockName;

/// Commands that wait for the thread.
const QUEUE_LENGTH_MAX: usize = 4_096;
/// How long another process may keep the file's write lock.
const FILE_BUSY_MAX: Duration = Duration::from_secs(5);
const FILE_BUSY_PAUSE: Duration = Duration::from_millis(5);
/// Before this, a write that raced a checkpoint of another process could corrupt the file.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// Locks in a SQLite file.
#[derive(Debug)]
pub struct Sqlite {
    asks: SyncSender<Ask>,
    bells: Bells,
}

/// Why a file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SqliteError {
    /// SQLite said no.
    #[error("cannot open {path} as a file of locks")]
    Open {
        /// Which file.
        path: PathBuf,
        /// SQLite's reason.
        source: rusqlite::Error,
    },
    /// The thread that works on the file could not be started, or this is not Linux.
    #[error("the machine does not give what a file of locks needs")]
    Machine(#[source] std::io::Error),
    /// Linked with a SQLite that can corrupt a file shared by processes.
    #[error("this SQLite is too old to share a file between processes")]
    TooOld,
}

impl Sqlite {
    /// Opens a file, and makes it when it is not there.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SqliteError> {
        let path = path.as_ref();
        if rusqlite::version_number() < SQLITE_VERSION_MIN {
            return Err(SqliteError::TooOld);
        }
        let boot_id =
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(SqliteError::Machine)?;
        let failed = |source| SqliteError::Open { path: path.to_owned(), source };
        let connection = connect_with_others(path, boot_id.trim()).map_err(failed)?;
        let (asks, asked) = sync_channel(QUEUE_LENGTH_MAX);
        let bells = Bells::default();
        let worker = Worker { connection, clock: Clock::system(), bells: bells.clone(), asked };
        // It ends when this store is dropped, because then nobody can ask any more.
        let thread = std::thread::Builder::new().name("leasehold-locks".to_owned());
        thread.spawn(move || worker.run()).map_err(SqliteError::Machine)?;
        Ok(Self { asks, bells })
    }

    async fn ask<T>(&self, ask: impl FnOnce(Reply<T>) -> Ask) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.asks.try_send(ask(reply)).map_err(|error| match error {
            TrySendError::Full(_) => StoreError::Unknown("too many commands wait for the file".into()),
            TrySendError::Disconnected(_) => StoreError::Refused("the thread of the file has ended".into()),
        })?;
        answer.await.unwrap_or_else(|ended| Err(StoreError::Unknown(ended.into())))
    }
}

/// Opens a file that others may be opening, too. Whoever turns its log on needs it alone for a moment, and SQLite does
/// not wait for that by itself.
fn connect_with_others(path: &Path, boot_id: &str) -> rusqlite::Result<Connection> {
    let began = Instant::now();
    loop {
        match connect(path, boot_id) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && began.elapsed() < FILE_BUSY_MAX =>
            {
                std::thread::sleep(FILE_BUSY_PAUSE);
            }
            connected => return connected,
        }
    }
}

fn connect(path: &Path, boot_id: &str) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(FILE_BUSY_MAX)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // The count of the machine's starts must be on the disk before a fence is made of it...
    connection.pragma_update(None, "synchronous", "FULL")?;
    table::prepare(&mut connection, boot_id)?;
    // ...and everything else ends with this start.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}

#[async_trait]
impl Backend for Sqlite {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn hears_late(&self) -> bool {
        false
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            level: Guarantee::Fenced,
            because: "One machine, one file on a local disk, one clock that nobody sets. Fences grow over \
                      crashes and restarts, but not when an older copy of the file is put in its place.",
        }
    }

    async fn try_acquire(&self, request: &Request<'_>) -> Result<Attempt, StoreError> {
        let Request { names, owner, ttl, order } = *request;
        let held = Held { names: names.clone(), owner: owner.clone(), ttl, order };
        self.ask(|reply| Ask::Acquire(held, reply)).await
    }

    async fn renew(&self, leases: &[Held]) -> Vec<Result<Renewed, StoreError>> {
        match self.ask(|reply| Ask::Renew(leases.to_vec(), reply)).await {
            Ok(renewed) => renewed.into_iter().map(Ok).collect(),
            Err(error) => {
                let text = error.to_string();
                leases.iter().map(|_| Err(StoreError::Unknown(text.clone().into()))).collect()
            }
        }
    }

    async fn release(&self, held: &Held) -> Result<Released, StoreError> {
        self.ask(|reply| Ask::Release(held.clone(), reply)).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LeaseView>, StoreError> {
        self.ask(|reply| Ask::Inspect(name.clone(), reply)).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.ask(|reply| Ask::List(query.clone(), reply)).await
    }

    async fn watch(&self, request: &Request<'_>, name: &LockName) -> Result<Watch, StoreError> {
        Ok(self.bells.watch(match request.order {
            Order::Any => name.as_str(),
            Order::Fifo => request.owner.as_str(),
        }))
    }
}
