//! What callers, workers, the follower and the sweeper of one server share.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hashbrown::HashMap;
use leasehold_core::{Epoch, Timestamp};
use leasehold_lock::PostgresDatabase;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_postgres::Client;

use super::connection::{self, CONNECT_TIME_MAX, CallError, Connection, Driver};
use super::halls::Halls;
use super::sight::Sight;
use crate::{EngineError, Meters, SecretKey};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) database: PostgresDatabase,
    /// What this server calls itself where the others see it.
    pub(crate) name: String,
    pub(crate) halls: Arc<Halls>,
    pub(crate) meters: Meters,
    pub(crate) sight: Sight,
    pub(crate) key: SecretKey,
    /// How far the ledger's clock is ahead of ours, in milliseconds. For people to see; it decides nothing.
    clock_ahead: AtomicI64,
    closed: AtomicBool,
    /// The ledger was found in another epoch: what this server knows is of one that is no more.
    outdated: AtomicBool,
    pub(crate) locked: LockedEvents,
    /// The connection that reads go through, many at a time.
    reader: Lane,
    /// The same for long looks into the log, behind which no other read shall wait.
    looker: Lane,
}

/// Events that somebody keeps locked, each with the instant at which it is tried again.
#[derive(Debug, Default)]
pub(crate) struct LockedEvents(SyncMutex<HashMap<i32, Instant>>);

/// How long their callers are told to come back before somebody tries again.
const LOCKED_FOR: Duration = Duration::from_secs(1);
/// How long that may take, after which another one tries.
const TRIED_FOR: Duration = Duration::from_secs(4);

impl LockedEvents {
    pub(crate) fn note(&self, event: i32) {
        let now = Instant::now();
        let mut locked = self.lock();
        // Nobody has asked for those in all that time.
        locked.retain(|_, until| now < *until + TRIED_FOR);
        locked.insert(event, now + LOCKED_FOR);
    }

    /// It was seen to be free.
    pub(crate) fn forget(&self, events: impl Iterator<Item = i32>) {
        let mut locked = self.lock();
        if !locked.is_empty() {
            for event in events {
                locked.remove(&event);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(crate) fn contains(&self, event: i32) -> bool {
        self.lock().get(&event).is_some_and(|until| Instant::now() < *until)
    }

    /// The same for somebody who would try: when the time has come, only the first is to.
    pub(crate) fn turns_away(&self, event: i32) -> bool {
        let now = Instant::now();
        match self.lock().get_mut(&event) {
            Some(until) if now < *until => true,
            Some(until) => {
                *until = now + TRIED_FOR;
                false
            }
            None => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that many share, if there is one.
type Lane = Mutex<Option<Arc<Reader>>>;

/// A connection for reads.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) client: Client,
    /// It failed somebody; the next one has another.
    is_given_up: AtomicBool,
    _driver: Driver,
}

impl Shared {
    pub(crate) fn new(
        database: PostgresDatabase,
        name: String,
        halls: Arc<Halls>,
        (meters, sight): (Meters, Sight),
        key: SecretKey,
    ) -> Self {
        Self {
            database,
            name,
            halls,
            meters,
            sight,
            key,
            clock_ahead: AtomicI64::new(0),
            closed: AtomicBool::new(false),
            outdated: AtomicBool::new(false),
            locked: LockedEvents::default(),
            reader: Lane::default(),
            looker: Lane::default(),
        }
    }

    /// A new connection to write on.
    pub(crate) async fn connect(&self) -> Result<Connection, CallError> {
        let connection = Connection::open(&self.database).await?;
        self.sight.connections.inc();
        self.admit(connection.epoch)?;
        Ok(connection)
    }

    /// A new connection to read from.
    async fn connect_to_read(&self, database: &PostgresDatabase) -> Result<(Client, Driver), CallError> {
        let connected = connection::plain(database).await?;
        self.sight.connections.inc();
        Ok(connected)
    }

    /// The same under this server's own name: one that lives has exactly one.
    pub(crate) async fn connect_by_name(&self) -> Result<(Client, Driver), CallError> {
        self.connect_to_read(&self.database.clone().named(&self.name)).await
    }

    /// Refuses a ledger in another epoch than at the start, and this server with it: its fences would be too low.
    pub(crate) fn admit(&self, epoch: Epoch) -> Result<(), CallError> {
        if epoch == self.halls.epoch() {
            return Ok(());
        }
        if !self.outdated.swap(true, Ordering::SeqCst) {
            tracing::error!(
                epoch = epoch.0,
                "the ledger is in another epoch: this server must be started again"
            );
        }
        Err(CallError::OtherEpoch)
    }

    /// A connection to read from: the one there is, or a new one. Whoever waits while somebody else makes it waits for
    /// one attempt: those who come in a row would make theirs one after the other.
    async fn reader(&self, lane: &Lane) -> Result<Arc<Reader>, CallError> {
        let waiting = tokio::time::timeout(CONNECT_TIME_MAX, lane.lock()).await;
        let mut known = waiting.map_err(|_| CallError::Timeout)?;
        match &*known {
            Some(reader) if reader.is_of_use() => Ok(Arc::clone(reader)),
            _ => {
                let (client, driver) = self.connect_to_read(&self.database).await?;
                let reader =
                    Arc::new(Reader { client, is_given_up: AtomicBool::new(false), _driver: driver });
                *known = Some(Arc::clone(&reader));
                Ok(reader)
            }
        }
    }

    /// Reads something, once more on a new connection if the first was broken. A ledger that does not answer is not
    /// asked again.
    pub(crate) async fn read<T, Looking>(
        &self,
        look: impl Fn(Arc<Reader>) -> Looking,
    ) -> Result<T, EngineError>
    where
        Looking: Future<Output = Result<T, CallError>>,
    {
        self.read_on(&self.reader, look).await
    }

    /// The same for what may take long.
    pub(crate) async fn look_back<T, Looking>(
        &self,
        look: impl Fn(Arc<Reader>) -> Looking,
    ) -> Result<T, EngineError>
    where
        Looking: Future<Output = Result<T, CallError>>,
    {
        self.read_on(&self.looker, look).await
    }

    async fn read_on<T, Looking>(
        &self,
        lane: &Lane,
        look: impl Fn(Arc<Reader>) -> Looking,
    ) -> Result<T, EngineError>
    where
        Looking: Future<Output = Result<T, CallError>>,
    {
        if self.is_closed() {
            return Err(EngineError::Closed);
        }
        let mut tries = 0;
        loop {
            let error = match self.reader(lane).await {
                Ok(reader) => match look(Arc::clone(&reader)).await {
                    Ok(seen) => return Ok(seen),
                    Err(error) => {
                        reader.is_given_up.store(true, Ordering::Relaxed);
                        error
                    }
                },
                Err(error) => error,
            };
            tries += 1;
            if tries > 1 || matches!(error, CallError::Timeout) {
                tracing::warn!(%error, "the ledger cannot be read");
                return Err(EngineError::Unavailable);
            }
        }
    }

    pub(crate) fn note_time(&self, ledger: Timestamp) {
        let ahead = ledger.as_millis().cast_signed() - wall_millis();
        self.clock_ahead.store(ahead, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Timestamp {
        let now = wall_millis() + self.clock_ahead.load(Ordering::Relaxed);
        Timestamp::from_millis(now.unsigned_abs())
    }

    pub(crate) fn is_up(&self) -> bool {
        self.sight.is_up() && !self.outdated.load(Ordering::SeqCst) && !self.is_closed()
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

impl Reader {
    fn is_of_use(&self) -> bool {
        !self.is_given_up.load(Ordering::Relaxed) && !self.client.is_closed()
    }
}

fn wall_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX / 2)
}
