//! The follower: reads the log as it grows, tells this server's readers, and then the callers whose answers waited.
//!
//! It is the only one who publishes, so readers see every server's changes, each once, in the ledger's order. A
//! worker hands its answers here after the commit; they are given when the readers know their effect.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_postgres::{Client, Statement};

use super::connection::{self, CALL_TIME_MAX, CallError, Driver, within};
use super::halls::{Followed, change};
use super::shared::Shared;
use crate::{Done, EngineError};

/// How often the logs of all events are read. What this server itself wrote is read at once.
const TICK: Duration = Duration::from_millis(25);
/// The same for many events: so much time for each.
const TICK_PER_EVENT: Duration = Duration::from_micros(100);
/// How long an answer waits for the readers at most. It is durable before it comes here.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Entries of one event that are read at a time.
const ENTRIES_PER_READ: i64 = 4_096;
/// How long to wait before connecting again.
const RECONNECT_AFTER: Duration = Duration::from_millis(200);

/// An answer and who waits for it.
pub(crate) type Answer = (oneshot::Sender<Result<Done, EngineError>>, Result<Done, EngineError>);

/// Answers of one commit, and the versions of the events that it made.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) versions: Vec<(i32, u64)>,
    pub(crate) answers: Vec<Answer>,
}

/// The task that follows the log.
#[derive(Debug)]
pub(crate) struct Follower {
    /// Holds at most one answer for each caller that waits.
    news: mpsc::UnboundedReceiver<News>,
    waiting: Waiting,
    log: Log,
    /// When the logs of all events are read next.
    all_at: Instant,
}

/// Answers that wait for the readers.
#[derive(Debug)]
struct Waiting {
    shared: Arc<Shared>,
    /// Each with the instant at which it stops waiting, in that order.
    news: Vec<(Instant, News)>,
}

/// The ledger's log, and a connection to read it.
#[derive(Debug)]
struct Log {
    shared: Arc<Shared>,
    connection: Option<(Client, Statement, Driver)>,
}

impl Follower {
    pub(crate) fn new(shared: Arc<Shared>, news: mpsc::UnboundedReceiver<News>) -> Self {
        let waiting = Waiting { shared: Arc::clone(&shared), news: Vec::new() };
        Self { news, waiting, log: Log { shared, connection: None }, all_at: Instant::now() }
    }

    /// Follows until the workers are gone and their news is told, then ends the readers' streams.
    pub(crate) async fn run(mut self) {
        loop {
            // Those who wait do so for the next read, and not for the next tick.
            let open = match self.waiting.news.is_empty() {
                false => !self.news.is_closed(),
                true => tokio::select! {
                    news = self.news.recv() => {
                        let open = news.is_some();
                        news.into_iter().for_each(|news| self.waiting.take(news));
                        open
                    }
                    () = tokio::time::sleep_until(self.all_at) => true,
                },
            };
            while let Ok(news) = self.news.try_recv() {
                self.waiting.take(news);
            }
            self.read().await;
            if !open && self.waiting.news.is_empty() {
                break;
            }
        }
        self.log.shared.halls.all().iter().for_each(|hall| hall.feed.end());
    }

    /// Reads what is new. A read that takes long keeps nobody from an answer for longer than it may wait.
    async fn read(&mut self) {
        let begun = Instant::now();
        // Whoever was refused changed nothing: there is nothing to read before that is told.
        self.waiting.give();
        let only = (begun < self.all_at).then(|| self.waiting.events());
        if only.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        if only.is_none() {
            let tick = TICK_PER_EVENT * u32::try_from(self.log.shared.halls.count()).unwrap_or(u32::MAX);
            self.all_at = begun + tick.max(TICK);
        }
        let Self { news, waiting, log, .. } = self;
        let mut reading = std::pin::pin!(log.read_or_let_go(only.as_deref()));
        loop {
            waiting.give();
            tokio::select! {
                () = &mut reading => break,
                Some(news) = news.recv() => waiting.take(news),
                () = tokio::time::sleep_until(waiting.until()) => {}
            }
        }
        waiting.give();
    }
}

impl Waiting {
    fn take(&mut self, news: News) {
        self.news.push((Instant::now() + WAIT_MAX, news));
    }

    /// The events that they are about.
    fn events(&self) -> Vec<i32> {
        let versions = self.news.iter().flat_map(|(_, news)| &news.versions);
        let mut events: Vec<i32> = versions.map(|(event, _)| *event).collect();
        events.sort_unstable();
        events.dedup();
        events
    }

    /// When the first of them stops waiting.
    fn until(&self) -> Instant {
        self.news.first().map_or_else(|| Instant::now() + WAIT_MAX, |(until, _)| *until)
    }

    /// Gives the answers whose effect the readers know, and those that have waited long enough.
    fn give(&mut self) {
        let now = Instant::now();
        let halls = &self.shared.halls;
        let is_seen = |(event, version): &(i32, u64)| {
            halls.known(*event).is_none_or(|hall| hall.feed.version() >= *version)
        };
        let ready = |(until, news): &mut (Instant, News)| *until <= now || news.versions.iter().all(is_seen);
        for (_, news) in self.news.extract_if(.., ready) {
            for (caller, answer) in news.answers {
                // A caller that went away finds its answer under its idempotency key.
                let _ = caller.send(answer);
            }
        }
    }
}

impl Log {
    /// Reads what is new, of all events or only of these, or lets go of the connection.
    async fn read_or_let_go(&mut self, only: Option<&[i32]>) {
        if let Err(error) = self.read(only).await {
            tracing::debug!(%error, "the log cannot be followed");
            self.shared.sight.note_up(false);
            self.connection = None;
            tokio::time::sleep(RECONNECT_AFTER).await;
        }
    }

    async fn read(&mut self, only: Option<&[i32]>) -> Result<(), CallError> {
        if self.connection.is_none() {
            let (client, driver) = self.shared.connect_by_name().await?;
            self.shared.admit(within(CALL_TIME_MAX, connection::epoch_of(&client)).await?)?;
            let follow = within(CALL_TIME_MAX, client.prepare(include_str!("sql/follow.sql"))).await?;
            self.connection = Some((client, follow, driver));
        }
        let Some((client, follow, _)) = &self.connection else { return Ok(()) };
        loop {
            let begun = self.shared.sight.now();
            let halls = match only {
                Some(events) => events.iter().filter_map(|event| self.shared.halls.known(*event)).collect(),
                None => self.shared.halls.all(),
            };
            let halls: HashMap<i32, _> =
                halls.into_iter().map(|hall| (hall.venue.number.0.cast_signed(), hall)).collect();
            let known: Vec<(i32, i64)> =
                halls.iter().map(|(no, hall)| (*no, hall.feed.version().cast_signed())).collect();
            let (events, versions): (Vec<i32>, Vec<i64>) = known.into_iter().unzip();
            let rows =
                within(CALL_TIME_MAX, client.query(follow, &[&events, &versions, &ENTRIES_PER_READ])).await?;
            let mut changes: HashMap<i32, Vec<Followed>> = HashMap::new();
            for row in &rows {
                let changes = changes.entry(row.get(0)).or_default();
                if row.get::<_, Option<i64>>(1).is_some() {
                    changes.push(change(row, 1, self.shared.halls.epoch())?);
                }
            }
            let full = changes.values().any(|changes| changes.len() as i64 >= ENTRIES_PER_READ);
            for (event, changes) in changes {
                let hall = &halls[&event];
                if changes.is_empty() {
                    tracing::error!(event, "the ledger has lost what it had: it is read again");
                }
                if changes.is_empty() || !hall.follow(changes) {
                    self.shared.halls.begin_anew(client, hall).await?;
                }
            }
            if !full {
                if only.is_none() {
                    self.shared.sight.note_current(begun);
                }
                self.shared.sight.note_up(true);
                return Ok(());
            }
        }
    }
}
