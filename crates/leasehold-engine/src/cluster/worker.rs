//! A worker: takes whatever has queued and has it carried out together, on a connection of its own.
//!
//! Callers that come while a transaction is on its way share the next one: nobody waits on purpose.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use leasehold_core::Command;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::connection::{CALL_TIME_MAX, Connection, Failure, within};
use super::create::create_event;
use super::desk::{self, Carried, Job};
use super::follower::News;
use super::plain_holds::{PlainHold, SpokenFor, grant};
use super::plain_sales::{is_plain_sale, sell};
use super::shared::Shared;
use super::wants::{Wants, number};
use crate::EngineError;

/// Commands in one transaction.
const BATCH_MAX: usize = 512;
/// How often a batch is tried again that met a deadlock.
const TRIES_MAX: usize = 4;
/// How long a command whose outcome is in doubt is asked again before its caller is told so.
const IN_DOUBT_TIME_MAX: Duration = Duration::from_secs(6);
/// How long to wait before a connection is tried again.
const RECONNECT_AFTER: Duration = Duration::from_millis(50);

/// What has queued; the workers take turns.
pub(crate) type Queue = Arc<Mutex<mpsc::Receiver<Job>>>;

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// The ledger itself, where it can.
    Ledger,
    /// The rules, on what the ledger has.
    Desk,
}

/// Jobs that are tried together.
struct Batch {
    jobs: Vec<Job>,
    by: By,
    tries: usize,
    events: Events,
}

/// Whose jobs are in a batch.
#[derive(Debug, Clone, Copy)]
enum Events {
    Any,
    /// Of one event; or of none that anybody knows.
    One(Option<i32>),
}

pub(crate) struct Worker {
    shared: Arc<Shared>,
    queue: Queue,
    news: mpsc::UnboundedSender<News>,
    connection: Option<Connection>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, queue: Queue, news: mpsc::UnboundedSender<News>) -> Self {
        Self { shared, queue, news, connection: None }
    }

    /// Works until the queue is closed and empty.
    pub(crate) async fn run(mut self) {
        // The first caller shall not wait for a connection; if there is none now, its turn tries again.
        let _ = self.connect().await;
        loop {
            let mut jobs = Vec::new();
            let taken = self.queue.lock().await.recv_many(&mut jobs, BATCH_MAX).await;
            if taken == 0 {
                return;
            }
            self.shared.meters.queue_depth.dec_by(taken as i64);
            let begun = Instant::now();
            if !self.shared.locked.is_empty() {
                jobs = self.without_the_locked(jobs).await;
            }
            self.carry_out(sorted(jobs)).await;
            self.shared.meters.commit_commands.observe(taken as f64);
            self.shared.meters.commit_seconds.observe(begun.elapsed().as_secs_f64());
        }
    }

    /// Sees to it that every job has an answer, whatever becomes of the ledger.
    async fn carry_out(&mut self, mut batches: Vec<Batch>) {
        let mut doubtful_since = None;
        while let Some(Batch { mut jobs, by, tries, events }) = batches.pop() {
            let is_late = |job: &mut Job| job.turn.take().is_some_and(|turn| !turn.take_in_time());
            give_up(jobs.extract_if(.., is_late).collect(), || EngineError::Overloaded);
            if jobs.is_empty() {
                continue;
            }
            let (failure, jobs) = match self.attempt(jobs, by).await {
                (Carried::Out(news), undecided) => {
                    self.shared.locked.forget(news.versions.iter().map(|(event, _)| *event));
                    // The follower lives until all workers are gone.
                    let _ = self.news.send(news);
                    batches.extend(Batch::of(undecided, By::Desk));
                    continue;
                }
                (Carried::Storm(jobs), _) => (Failure::Again, jobs),
                (Carried::Failed(failure, jobs), others) => {
                    batches.extend(Batch::of(others, By::Desk));
                    (failure, jobs)
                }
            };
            let in_time = doubtful_since.is_none_or(|since: Instant| since.elapsed() < IN_DOUBT_TIME_MAX);
            let again = |jobs| Batch { jobs, by, tries: tries + 1, events };
            let doubtful = jobs.iter().any(|job| job.in_doubt.has_begun());
            match (failure, events) {
                // The transaction in doubt may be the one that has it locked.
                (Failure::Locked, _) if doubtful && in_time => batches.push(again(jobs)),
                (Failure::Locked, Events::Any) => {
                    let sorted = self.by_event(jobs).await;
                    let is_of_one = sorted.len() == 1;
                    for (event, jobs) in sorted {
                        if is_of_one {
                            self.turn_away(event, jobs);
                        } else if event.is_some_and(|event| self.shared.locked.contains(event)) {
                            give_up(jobs, || EngineError::Overloaded);
                        } else {
                            batches.push(Batch { jobs, by, tries, events: Events::One(event) });
                        }
                    }
                }
                (Failure::Locked, Events::One(event)) => self.turn_away(event, jobs),
                (Failure::Again, _) if tries < TRIES_MAX => {
                    self.shared.sight.tried_again.inc();
                    batches.push(again(jobs));
                }
                // One of them is the cause: alone, and by the rules themselves, it fails alone.
                (Failure::Again | Failure::Wrong, _) if jobs.len() > 1 || by == By::Ledger => {
                    batches.extend(jobs.into_iter().filter_map(|job| Batch::of(vec![job], By::Desk)));
                }
                (Failure::Again, _) => give_up(jobs, || EngineError::Overloaded),
                (Failure::Wrong, _) => give_up(jobs, || EngineError::Unavailable),
                (Failure::Unavailable, _) => {
                    self.connection = None;
                    if tries == 0 || (doubtful && in_time) {
                        self.shared.sight.tried_again.inc();
                        tokio::time::sleep(RECONNECT_AFTER).await;
                        batches.push(again(jobs));
                    } else {
                        give_up(jobs, || EngineError::Unavailable);
                    }
                }
                (Failure::InDoubt, _) => {
                    self.connection = None;
                    self.shared.sight.in_doubt.inc_by(jobs.len() as u64);
                    jobs.iter().for_each(|job| job.in_doubt.begin());
                    doubtful_since.get_or_insert_with(Instant::now);
                    // Asked again with the same id or key, they wait for the transaction in doubt, and then know.
                    let (known, unknown): (Vec<Job>, Vec<Job>) =
                        jobs.into_iter().partition(|job| in_time && can_be_asked_again(job));
                    give_up(unknown, || EngineError::Unknown);
                    if !known.is_empty() {
                        tokio::time::sleep(RECONNECT_AFTER).await;
                        batches.push(again(known));
                    }
                }
            }
        }
    }

    /// Tries a batch once. Those that the ledger left to the rules come back beside what became of the others.
    async fn attempt(&mut self, jobs: Vec<Job>, by: By) -> (Carried, Vec<Job>) {
        let shared = Arc::clone(&self.shared);
        let connection = match self.connect().await {
            Ok(connection) => connection,
            Err(failure) => return (Carried::Failed(failure, jobs), Vec::new()),
        };
        if by == By::Desk {
            let carried = match &jobs[..] {
                [job] if matches!(job.request.command, Command::CreateEvent(_)) => {
                    create_event(connection, &shared, jobs).await
                }
                _ => desk::carry_out(connection, &shared, jobs).await,
            };
            return (carried, Vec::new());
        }
        // Holds and sales are in batches of their own.
        if jobs.iter().all(|job| is_plain_sale(&job.request.command)) {
            let decided = sell(connection, &shared, jobs).await;
            return (decided.carried, decided.undecided);
        }
        let (mut plain, mut others) = (Vec::new(), Vec::new());
        let mut spoken_for = SpokenFor::default();
        for job in jobs {
            match PlainHold::of(job, &shared, &mut spoken_for) {
                Ok(hold) => plain.push(hold),
                Err(job) => others.push(job),
            }
        }
        if plain.is_empty() {
            return (Carried::Out(News::default()), others);
        }
        let decided = grant(connection, &shared, plain).await;
        // What was not sent is not in doubt, whatever became of the rest.
        others.extend(decided.undecided);
        (decided.carried, others)
    }

    /// Tells the callers of an event that somebody keeps locked to come back, and the next ones at once: it keeps only its
    /// own callers waiting.
    fn turn_away(&self, event: Option<i32>, jobs: Vec<Job>) {
        event.iter().for_each(|event| self.shared.locked.note(*event));
        give_up(jobs, || EngineError::Overloaded);
    }

    /// Tells the callers of events that are locked to come back before anybody waits for them.
    async fn without_the_locked(&self, jobs: Vec<Job>) -> Vec<Job> {
        let events = self.events_of(&jobs).await;
        let is_locked = |event: &Option<i32>| event.is_some_and(|event| self.shared.locked.turns_away(event));
        let (locked, free): (Vec<_>, Vec<_>) =
            jobs.into_iter().zip(events).partition(|(_, event)| is_locked(event));
        give_up(locked.into_iter().map(|(job, _)| job).collect(), || EngineError::Overloaded);
        free.into_iter().map(|(job, _)| job).collect()
    }

    /// The event that each job is about.
    async fn events_of(&self, jobs: &[Job]) -> Vec<Option<i32>> {
        let named: Vec<Wants> = jobs.iter().map(|job| Wants::of(&job.request.command)).collect();
        let (holds, bookings): (Vec<Uuid>, Vec<Uuid>) = (
            named.iter().flat_map(|wants| &wants.holds).copied().collect(),
            named.iter().flat_map(|wants| &wants.bookings).copied().collect(),
        );
        let sql = "SELECT id, event_no FROM leasehold.holds WHERE id = ANY ($1)
                   UNION ALL SELECT id, event_no FROM leasehold.bookings WHERE id = ANY ($2)";
        let known: HashMap<Uuid, i32> = self
            .look(sql, &[&holds, &bookings])
            .await
            .iter()
            .map(|row| (row.get::<_, Uuid>(0), row.get::<_, i32>(1)))
            .collect();
        let event_of = |(job, wants): (&Job, &Wants)| {
            let mut ids = wants.holds.iter().chain(&wants.bookings);
            event_of(job).or_else(|| ids.find_map(|id| known.get(id).copied()))
        };
        jobs.iter().zip(&named).map(event_of).collect()
    }

    /// Jobs by the events that they are about, those that nobody keeps locked last.
    async fn by_event(&self, jobs: Vec<Job>) -> Vec<(Option<i32>, Vec<Job>)> {
        let mut sorted: HashMap<Option<i32>, Vec<Job>> = HashMap::new();
        let events = self.events_of(&jobs).await;
        for (job, event) in jobs.into_iter().zip(events) {
            sorted.entry(event).or_default().push(job);
        }
        let events: Vec<i32> = sorted.keys().flatten().copied().collect();
        let sql = "SELECT no FROM leasehold.events WHERE no = ANY ($1) ORDER BY no FOR UPDATE SKIP LOCKED";
        let free: Vec<i32> = self.look(sql, &[&events]).await.iter().map(|row| row.get(0)).collect();
        let mut sorted: Vec<(Option<i32>, Vec<Job>)> = sorted.into_iter().collect();
        sorted.sort_by_key(|(event, _)| event.is_some_and(|event| free.contains(&event)));
        sorted
    }

    /// Rows, or none if they cannot be had.
    async fn look(&self, sql: &str, arguments: &[&(dyn ToSql + Sync)]) -> Vec<Row> {
        match &self.connection {
            Some(connection) => {
                within(CALL_TIME_MAX, connection.client.query(sql, arguments)).await.unwrap_or_default()
            }
            None => Vec::new(),
        }
    }

    async fn connect(&mut self) -> Result<&Connection, Failure> {
        if self.connection.as_ref().is_none_or(|connection| connection.client.is_closed()) {
            match self.shared.connect().await {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => {
                    tracing::warn!(%error, "no connection to the ledger");
                    self.shared.sight.note_up(false);
                    return Err(Failure::Unavailable);
                }
            }
        }
        Ok(self.connection.as_ref().expect("it was just made"))
    }
}

impl Batch {
    fn of(jobs: Vec<Job>, by: By) -> Option<Self> {
        (!jobs.is_empty()).then_some(Self { jobs, by, tries: 0, events: Events::Any })
    }
}

/// New holds together, sales together, the rest together, and what changes an event alone: nobody waits for more than its kind.
fn sorted(jobs: Vec<Job>) -> Vec<Batch> {
    let (mut holds, mut sales, mut others, mut batches) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for job in jobs {
        match &job.request.command {
            Command::CreateHold(_) => holds.push(job),
            command if is_plain_sale(command) => sales.push(job),
            Command::CreateEvent(_) | Command::UpdateEvent(_) => {
                batches.extend(Batch::of(vec![job], By::Desk));
            }
            _ => others.push(job),
        }
    }
    batches.extend(Batch::of(others, By::Desk));
    batches.extend(Batch::of(sales, By::Ledger));
    // The last one is the first to be tried.
    batches.extend(Batch::of(holds, By::Ledger));
    batches
}

/// The event that a command names.
fn event_of(job: &Job) -> Option<i32> {
    match &job.request.command {
        Command::UpdateEvent(update) => Some(number(update.event)),
        Command::CreateHold(create) => Some(number(create.event)),
        Command::CreateBlock(create) => Some(number(create.event)),
        Command::RemoveBlock(event, _) => Some(number(*event)),
        _ => None,
    }
}

/// Whether asking again gives the first answer, and not a second effect.
fn can_be_asked_again(job: &Job) -> bool {
    job.request.key.is_some() || matches!(job.request.command, Command::CreateHold(_))
}

/// Tells the callers. What is in doubt stays so, whatever made us stop asking.
fn give_up(jobs: Vec<Job>, error: impl Fn() -> EngineError) {
    for job in jobs {
        let error = if job.in_doubt.has_begun() { EngineError::Unknown } else { error() };
        let _ = job.reply.send(Err(error));
    }
}
