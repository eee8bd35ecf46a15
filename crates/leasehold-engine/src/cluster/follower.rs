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

/// How often the log is read while this server itself writes nothing.
const TICK: Duration = Duration::from_millis(25);
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
    shared: Arc<Shared>,
    /// Holds at most one answer for each caller that waits.
    news: mpsc::UnboundedReceiver<News>,
    /// Answers that wait for the readers, with the instant at which they stop waiting.
    waiting: Vec<(Instant, News)>,
    connection: Option<(Client, Statement, Driver)>,
}

impl Follower {
    pub(crate) fn new(shared: Arc<Shared>, news: mpsc::UnboundedReceiver<News>) -> Self {
        Self { shared, news, waiting: Vec::new(), connection: None }
    }

    /// Follows until the workers are gone and their news is told, then ends the readers' streams.
    pub(crate) async fn run(mut self) {
        loop {
            let open = tokio::select! {
                news = self.news.recv() => match news {
                    Some(news) => {
                        self.take(news);
                        true
                    }
                    None => false,
                },
                _ = tokio::time::sleep(TICK) => true,
            };
            while let Ok(news) = self.news.try_recv() {
                self.take(news);
            }
            if let Err(error) = self.read().await {
                tracing::debug!(%error, "the log cannot be followed");
                self.shared.note_up(false);
                self.connection = None;
                tokio::time::sleep(RECONNECT_AFTER).await;
            }
            self.give_answers();
            if !open && self.waiting.is_empty() {
                break;
            }
        }
        self.shared.halls.all().iter().for_each(|hall| hall.feed.end());
    }

    fn take(&mut self, news: News) {
        self.waiting.push((Instant::now() + WAIT_MAX, news));
    }

    /// Gives the answers whose effect the readers know, and those that have waited long enough.
    fn give_answers(&mut self) {
        let now = Instant::now();
        let halls = &self.shared.halls;
        let is_seen = |(event, version): &(i32, u64)| {
            halls.known(*event).is_none_or(|hall| hall.feed.version() >= *version)
        };
        let ready = |(until, news): &mut (Instant, News)| *until <= now || news.versions.iter().all(is_seen);
        for (_, news) in self.waiting.extract_if(.., ready) {
            for (caller, answer) in news.answers {
                // A caller that went away finds its answer under its idempotency key.
                let _ = caller.send(answer);
            }
        }
    }

    async fn read(&mut self) -> Result<(), CallError> {
        if self.connection.is_none() {
            let (client, driver) = connection::plain(&self.shared.config).await?;
            let follow = within(CALL_TIME_MAX, client.prepare(include_str!("sql/follow.sql"))).await?;
            self.connection = Some((client, follow, driver));
        }
        let Some((client, follow, _)) = &self.connection else { return Ok(()) };
        loop {
            let halls: HashMap<i32, _> = self
                .shared
                .halls
                .all()
                .into_iter()
                .map(|hall| (hall.venue.number.0.cast_signed(), hall))
                .collect();
            let known: Vec<(i32, i64)> =
                halls.iter().map(|(no, hall)| (*no, hall.feed.version().cast_signed())).collect();
            let (events, versions): (Vec<i32>, Vec<i64>) = known.into_iter().unzip();
            let rows =
                within(CALL_TIME_MAX, client.query(follow, &[&events, &versions, &ENTRIES_PER_READ])).await?;
            let mut changes: HashMap<i32, Vec<Followed>> = HashMap::new();
            for row in &rows {
                changes.entry(row.get(0)).or_default().push(change(row, 1, self.shared.halls.epoch())?);
            }
            let full = changes.values().any(|changes| changes.len() as i64 >= ENTRIES_PER_READ);
            for (event, changes) in changes {
                let hall = &halls[&event];
                if !hall.follow(changes) {
                    self.shared.halls.begin_anew(client, hall).await?;
                }
            }
            if !full {
                self.shared.note_up(true);
                return Ok(());
            }
        }
    }
}
