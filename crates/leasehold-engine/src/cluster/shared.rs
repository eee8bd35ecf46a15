//! What callers, workers, the follower and the sweeper of one server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{Epoch, Timestamp};
use tokio::sync::Mutex;
use tokio_postgres::{Client, Config};

use super::connection::{self, CallError, Connection, Driver};
use super::halls::Halls;
use crate::{Clock, EngineError, Meters, SecretKey};

/// Readers that were up to date so recently are so now, as far as anybody can say.
const CURRENT_FOR: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) halls: Arc<Halls>,
    pub(crate) meters: Meters,
    pub(crate) key: SecretKey,
    /// How far the ledger's clock is ahead of ours, in milliseconds. For people to see; it decides nothing.
    clock_ahead: AtomicI64,
    /// Counts also while the machine sleeps, so that what is shown after that is known to be old.
    clock: Clock,
    /// When the readers last knew the whole log, by `clock`.
    current_at: AtomicU64,
    /// Whether the last look at the ledger succeeded.
    up: AtomicBool,
    closed: AtomicBool,
    /// The ledger was found in another epoch: what this server knows is of one that is no more.
    outdated: AtomicBool,
    /// The connection that reads go through, many at a time.
    reader: Lane,
    /// The same for long looks into the log, behind which no other read shall wait.
    looker: Lane,
}

/// A connection that many share, if there is one.
type Lane = Mutex<Option<Arc<Reader>>>;

/// A connection for reads.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) client: Client,
    _driver: Driver,
}

impl Shared {
    pub(crate) fn new(config: Config, halls: Arc<Halls>, key: SecretKey) -> Self {
        let clock = Clock::system();
        Self {
            current_at: AtomicU64::new(clock.now().as_millis()),
            clock,
            config,
            halls,
            meters: Meters::default(),
            key,
            clock_ahead: AtomicI64::new(0),
            up: AtomicBool::new(true),
            closed: AtomicBool::new(false),
            outdated: AtomicBool::new(false),
            reader: Lane::default(),
            looker: Lane::default(),
        }
    }

    /// A new connection to write on.
    pub(crate) async fn connect(&self) -> Result<Connection, CallError> {
        let connection = Connection::open(&self.config).await?;
        self.admit(connection.epoch)?;
        Ok(connection)
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

    /// A connection to read from: the one there is, or a new one.
    async fn reader(&self, lane: &Lane) -> Result<Arc<Reader>, CallError> {
        let mut known = lane.lock().await;
        match &*known {
            Some(reader) if !reader.client.is_closed() => Ok(Arc::clone(reader)),
            _ => {
                let (client, driver) = connection::plain(&self.config).await?;
                let reader = Arc::new(Reader { client, _driver: driver });
                *known = Some(Arc::clone(&reader));
                Ok(reader)
            }
        }
    }

    /// Reads something, once more on a new connection if the first was broken.
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
                        drop_reader(lane, &reader).await;
                        error
                    }
                },
                Err(error) => error,
            };
            tries += 1;
            if tries > 1 {
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

    /// The time of this machine, to be given to [`Self::note_current`].
    pub(crate) fn machine_time(&self) -> Timestamp {
        self.clock.now()
    }

    /// The readers know everything that was in the log then.
    pub(crate) fn note_current(&self, at: Timestamp) {
        self.current_at.fetch_max(at.as_millis(), Ordering::SeqCst);
    }

    /// How long ago the readers last knew the whole log, unless that was just now.
    pub(crate) fn behind(&self) -> Option<Duration> {
        Some(self.since_current()).filter(|behind| *behind >= CURRENT_FOR)
    }

    fn since_current(&self) -> Duration {
        let now = self.clock.now().as_millis();
        Duration::from_millis(now.saturating_sub(self.current_at.load(Ordering::SeqCst)))
    }

    pub(crate) fn note_up(&self, up: bool) {
        if self.up.swap(up, Ordering::SeqCst) != up {
            match up {
                true => tracing::info!("the ledger answers"),
                false => tracing::warn!("the ledger does not answer"),
            }
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::SeqCst) && !self.outdated.load(Ordering::SeqCst) && !self.is_closed()
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

/// Lets go of a connection that did not answer.
async fn drop_reader(lane: &Lane, failed: &Arc<Reader>) {
    let mut known = lane.lock().await;
    if known.as_ref().is_some_and(|reader| Arc::ptr_eq(reader, failed)) {
        *known = None;
    }
}

fn wall_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX / 2)
}
