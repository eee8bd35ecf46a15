//! The cluster engine: any number of servers on one PostgreSQL database, the ledger, which decides everything.
//!
//! A caller's command goes into a bounded queue. A [`worker`] takes whatever has queued and has it carried out in
//! one transaction: [`plain_holds`] and [`plain_sales`] by one call that the ledger decides itself, all else by the
//! [`desk`], which locks the events concerned, loads what the commands are about and applies the rules of
//! `leasehold-core`. The [`follower`] reads the log as it grows, from all servers, and tells readers and then callers. The
//! [`sweeper`] ends what is over, in one server at a time. No server keeps anything that another one needs.
//!
//! Everything about one event happens under the lock of its row in `leasehold.events`, and by the ledger's clock,
//! which is read under that lock. So its changes are in one order, and the log has no gaps.

mod rows;
mod wants;

mod connection;
mod migrate;

mod part;

mod desk;
mod plain_holds;
mod plain_sales;

mod create;
mod remembered;

mod election;
mod follower;
mod gate;
mod halls;
mod shared;
mod sight;
mod sweeper;
mod worker;

mod check;
mod facts;
mod history;
mod reads;
mod replicas;

mod import;

use std::path::Path;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use leasehold_core::{
    Block, BookingId, Command, Epoch, EventState, Hold, HoldId, ItemRequest, Name, Refusal, SeatNo,
    SeatStatus, Timestamp,
};
use leasehold_lock::link::Link;
use leasehold_lock::{BadRedisUrl, PostgresDatabase};
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

pub use check::{LedgerReport, check_ledger};
pub use facts::{LEDGER_CONNECTIONS_MAX, LedgerFacts, ledger_facts};
pub use gate::GateMeters;
pub use import::{DataFile, MoveError, Moved};
pub(crate) use sight::Sight;

use self::connection::{CALL_TIME_MAX, CallError, with_reasons, within};
use self::desk::{Doubt, Job, QUEUED_TIME_MAX, Turn};
use self::follower::Follower;
use self::gate::{Claim, Gate};
use self::halls::{Hall, Halls};
use self::migrate::MigrateError;
use self::shared::{Reader, Shared};
use self::sweeper::Sweeper;
use self::worker::Worker;
use crate::{
    Availability, Clock, Done, Engine, EngineError, EventSummary, HoldSecret, IdempotencyKey, LogPage,
    LogQuery, Meters, Page, RefundsDue, Replica, Request, SecretKey, Since, Subscription, Venue, Version,
};

/// Connections on which a server writes, unless told otherwise.
///
/// One event's transactions follow one another; a second one waits at the ledger while the first is being made durable.
const WRITERS: usize = 3;

/// How long whoever was refused waits until the gate knows that.
const SETTLE_TIME_MAX: Duration = Duration::from_millis(250);

/// How long after a commit every server has read it, unless it cannot reach the ledger, which it then knows.
const READ_WITHIN: Duration = Duration::from_secs(2);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// How to open a ledger.
#[derive(Clone)]
pub struct ClusterOptions {
    url: String,
    key: SecretKey,
    gate: Option<String>,
    queue_length_max: usize,
    writers: usize,
    listens_on: Option<String>,
}

/// See this module's documentation.
#[derive(Debug)]
pub struct ClusterEngine {
    shared: Arc<Shared>,
    /// What no other server has.
    process: SecretKey,
    gate: Option<Arc<Gate>>,
    /// None when closed.
    queue: SyncMutex<Option<mpsc::Sender<Job>>>,
    stop: watch::Sender<bool>,
    tasks: SyncMutex<Vec<JoinHandle<()>>>,
}

/// Why a ledger could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenLedgerError {
    /// The address cannot be read.
    #[error("the ledger's address is not valid: {0}")]
    Address(String),
    /// The gate's address cannot be read.
    #[error("the gate's address is not valid: {0}")]
    Gate(#[from] BadRedisUrl),
    /// No connection, or it broke.
    #[error("the ledger cannot be used: {0}")]
    Unusable(String),
    /// It was written by a newer program.
    #[error("the ledger has migration {found}, this program knows fewer: use a newer one")]
    TooNew {
        /// The last migration it has.
        found: i32,
    },
    /// Its secrets are made with another key.
    #[error("the ledger is used with another secret key: give every server the same one")]
    OtherKey,
}

impl ClusterOptions {
    /// The ledger at `postgres://user@host/database`, with the key that hold secrets are made with. What the address says
    /// of TLS is understood as for locks on PostgreSQL.
    ///
    /// Every server on one ledger needs the same key; the ledger keeps a code of it and refuses another one.
    pub fn new(url: impl Into<String>, key: SecretKey) -> Self {
        let url = url.into();
        Self { url, key, gate: None, queue_length_max: 16_384, writers: WRITERS, listens_on: None }
    }

    /// Turns losers away on these Redis servers: `redis-cluster://a,b,c`, `redis://` or `redis-sentinel://`.
    ///
    /// They need not answer, now or later: without them the ledger decides alone, and slower.
    pub fn gate(mut self, url: impl Into<String>) -> Self {
        self.gate = Some(url.into());
        self
    }

    /// Sheds commands when this many wait.
    pub fn queue_length_max(mut self, length: usize) -> Self {
        self.queue_length_max = length.max(1);
        self
    }

    /// Names this server to the others by the address that it listens on.
    pub fn listens_on(mut self, address: impl Into<String>) -> Self {
        self.listens_on = Some(address.into());
        self
    }

    /// Writes on this many connections.
    pub fn writers(mut self, writers: usize) -> Self {
        self.writers = writers.max(1);
        self
    }
}

impl std::fmt::Debug for ClusterOptions {
    /// Without the address, which may have a password in it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterOptions").field("writers", &self.writers).finish_non_exhaustive()
    }
}

/// What a worker was asked to do.
struct Submitted {
    answer: oneshot::Receiver<Result<Done, EngineError>>,
    turn: Turn,
    in_doubt: Doubt,
}

impl ClusterEngine {
    /// Brings the ledger up to date if that is needed, and starts the workers.
    pub async fn open(options: ClusterOptions) -> Result<Self, OpenLedgerError> {
        let database = database_at(&options.url)?;
        migrate::migrate(&database).await.map_err(|error| match error {
            MigrateError::TooNew(found) => OpenLedgerError::TooNew { found },
            MigrateError::Call(error) => unusable(error),
        })?;
        let link = options.gate.as_deref().map(Link::open).transpose()?;
        let (ledger, epoch, now) = admit(&database, &options.key).await?;
        let sight = Sight::new();
        let mut meters = Meters::of_ledger(sight.clone());
        meters.gate = link.is_some().then(GateMeters::default);
        let gate_parts = link.zip(meters.gate.clone());
        let name = replicas::name_of_this_server(options.listens_on.as_deref());
        let halls = Arc::new(Halls::new(epoch));
        let shared = Arc::new(Shared::new(database, name, halls, (meters, sight), options.key));
        let gate = gate_parts.map(|(link, meters)| Arc::new(Gate::new(link, ledger, meters, &shared)));
        shared.note_time(now);
        if let Some(gate) = &gate {
            gate.begin().await;
        }
        let (queue, jobs) = mpsc::channel(options.queue_length_max);
        let jobs = Arc::new(Mutex::new(jobs));
        let (news_sender, news) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let mut tasks = Vec::new();
        for _ in 0..options.writers {
            let worker = Worker::new(Arc::clone(&shared), Arc::clone(&jobs), news_sender.clone());
            tasks.push(tokio::spawn(worker.run()));
        }
        tasks.push(tokio::spawn(Sweeper::new(Arc::clone(&shared)).run(stopped)));
        tasks.push(tokio::spawn(Follower::new(Arc::clone(&shared), news).run()));
        tracing::info!(epoch = epoch.0, "opened the ledger");
        let (queue, tasks) = (SyncMutex::new(Some(queue)), SyncMutex::new(tasks));
        Ok(Self { shared, process: SecretKey::random(), gate, queue, stop, tasks })
    }

    fn require_secret(&self, hold: HoldId, secret: Option<HoldSecret>) -> Result<(), EngineError> {
        if self.shared.key.proves(hold, secret) { Ok(()) } else { Err(Refusal::NotFound.into()) }
    }

    async fn hall_of(&self, venue: &Venue) -> Result<Arc<Hall>, EngineError> {
        let number = venue.number.0.cast_signed();
        if let Some(hall) = self.shared.halls.known(number) {
            return Ok(hall);
        }
        let halls = &self.shared.halls;
        let load = |reader: Arc<Reader>| async move { halls.get(&reader.client, number).await };
        let hall = self.shared.read(load).await?;
        hall.ok_or_else(|| Refusal::NotFound.into())
    }

    /// Has the workers carry it out.
    async fn carry_out(&self, request: Request) -> Result<Done, EngineError> {
        let answer = self.submit(request)?;
        answered(answer, &self.shared).await
    }

    /// The same for a new hold that may have claimed something: the gate learns the answer even if the caller goes away, and
    /// whoever got what it wanted does not wait for that.
    async fn carry_out_claimed(
        &self,
        request: Request,
        gate: &Arc<Gate>,
        hall: Arc<Hall>,
        mut claim: Option<Claim>,
    ) -> Result<Done, EngineError> {
        let answer = self.submit(request);
        let (gate, shared) = (Arc::clone(gate), Arc::clone(&self.shared));
        let (sender, done) = oneshot::channel();
        tokio::spawn(async move {
            let done = match answer {
                Ok(submitted) => {
                    let in_doubt = submitted.in_doubt.clone();
                    let done = answered(submitted, &shared).await;
                    // What was sent first may arrive last.
                    claim.iter_mut().filter(|_| in_doubt.has_begun()).for_each(Claim::stay_marked);
                    done
                }
                Err(error) => Err(error),
            };
            let Some(settlement) = gate.settlement(&hall, claim, done.as_ref()) else {
                let _ = sender.send(done);
                return;
            };
            let mut settling = std::pin::pin!(gate.settle(settlement));
            // Who is refused may ask again at once, and shall not be refused because of this very question.
            let settled = done.is_err() && tokio::time::timeout(SETTLE_TIME_MAX, &mut settling).await.is_ok();
            let _ = sender.send(done);
            if !settled {
                settling.await;
            }
        });
        done.await.unwrap_or(Err(EngineError::Unknown))
    }

    fn submit(&self, request: Request) -> Result<Submitted, EngineError> {
        let ((sender, answer), turn) = (oneshot::channel(), Turn::begin());
        let in_doubt = Doubt::default();
        self.push(Job {
            request: Box::new(request),
            reply: sender,
            turn: Some(turn.clone()),
            in_doubt: in_doubt.clone(),
        })?;
        Ok(Submitted { answer, turn, in_doubt })
    }

    fn push(&self, job: Job) -> Result<(), EngineError> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = &*queue else { return Err(EngineError::Closed) };
        match queue.try_send(job) {
            Ok(()) => {
                self.shared.meters.queue_depth.inc();
                Ok(())
            }
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.shared.meters.shed.inc();
                Err(EngineError::Overloaded)
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(EngineError::Closed),
        }
    }
}

/// A worker's answer. It answers everything it took, unless it was ended in the middle of it.
async fn answered(submitted: Submitted, shared: &Shared) -> Result<Done, EngineError> {
    let Submitted { mut answer, turn, in_doubt: _ } = submitted;
    let done = match tokio::time::timeout(QUEUED_TIME_MAX, &mut answer).await {
        Ok(done) => done.unwrap_or(Err(EngineError::Unknown)),
        Err(_) if turn.take() => Err(EngineError::Overloaded),
        Err(_) => answer.await.unwrap_or(Err(EngineError::Unknown)),
    };
    if done.as_ref().is_ok_and(|done| done.replayed) {
        shared.meters.replayed.inc();
    }
    if matches!(done, Err(EngineError::Overloaded)) {
        shared.meters.shed.inc();
    }
    done
}

/// Why these items cannot be had, whatever becomes of the holds there are, but for seats that were just said to be taken.
fn plainly_refused(
    summary: &EventSummary,
    seats: &[SeatStatus],
    items: &[ItemRequest],
    were_taken: impl FnOnce(&[SeatNo]) -> bool,
) -> Option<Refusal> {
    if summary.state == EventState::Closed {
        return Some(Refusal::EventClosed);
    }
    let (mut taken, mut is_plain, mut short) = (Vec::new(), false, None);
    for item in items {
        match *item {
            ItemRequest::Seat(seat) => {
                let status = *seats.get(seat.0 as usize)?;
                is_plain |= matches!(status, SeatStatus::Sold | SeatStatus::Blocked);
                if status != SeatStatus::Free {
                    taken.push(seat);
                }
            }
            ItemRequest::Pool(pool, quantity) => {
                let counts = summary.pools.get(pool.0 as usize)?;
                if counts.free() + counts.held < quantity {
                    let (available, returning) = (counts.free(), counts.held);
                    short = short.or(Some(Refusal::PoolShort { pool, available, returning }));
                }
            }
            ItemRequest::Best { count, section: None } => {
                let (available, returning) = (summary.counts.free, summary.counts.held);
                if available + returning < count {
                    short = short.or(Some(Refusal::NotTogether { available, returning }));
                }
            }
            ItemRequest::Best { section: Some(_), .. } => {}
        }
    }
    match taken.is_empty() {
        true => short,
        false => (is_plain || were_taken(&taken)).then_some(Refusal::SeatsTaken(taken)),
    }
}

fn database_at(url: &str) -> Result<PostgresDatabase, OpenLedgerError> {
    match PostgresDatabase::at(url) {
        Ok(database) => Ok(database.named("leasehold")),
        Err(error) => Err(OpenLedgerError::Address(with_reasons(&error))),
    }
}

fn unusable(error: CallError) -> OpenLedgerError {
    OpenLedgerError::Unusable(error.to_string())
}

/// What the ledger keeps of a key.
fn key_code(key: &SecretKey) -> Vec<u8> {
    key.for_purpose("ledger").code_of(&[b"the same key on every server"]).to_vec()
}

/// Compares the key with the ledger's, which takes the first one it is given and begins its first epoch with it; and
/// reads its id, epoch and time.
async fn admit(
    database: &PostgresDatabase,
    key: &SecretKey,
) -> Result<(Uuid, Epoch, Timestamp), OpenLedgerError> {
    let (client, _driver) = connection::plain(database).await.map_err(unusable)?;
    let (code, first) = (key_code(key), Epoch::first(Clock::system().now()).0.cast_signed());
    let sql = "UPDATE leasehold.ledger SET key_check = coalesce(key_check, $1),
               epoch = CASE WHEN key_check IS NULL THEN greatest(epoch, $2) ELSE epoch END
               RETURNING epoch, key_check, leasehold.now_ms(), id";
    let row = within(CALL_TIME_MAX, client.query_one(sql, &[&code, &first])).await.map_err(unusable)?;
    if row.get::<_, Vec<u8>>(1) != code {
        return Err(OpenLedgerError::OtherKey);
    }
    Ok((row.get(3), Epoch(row.get::<_, i32>(0).cast_unsigned()), rows::time(row.get(2))))
}

#[async_trait]
impl Engine for ClusterEngine {
    async fn venue(&self, event: &str) -> Result<Option<Arc<Venue>>, EngineError> {
        if let Some(hall) = self.shared.halls.known_by_id(event) {
            return Ok(Some(Arc::clone(&hall.venue)));
        }
        let halls = &self.shared.halls;
        let find = |reader: Arc<Reader>| async move { halls.find(&reader.client, event).await };
        let hall = self.shared.read(find).await?;
        Ok(hall.map(|hall| Arc::clone(&hall.venue)))
    }

    /// Refuses what is sold or blocked, as far as this server has read the log a moment ago. What is held may be over by now: that
    /// is for the gate in Redis and for the ledger, unless the gate was asked a moment ago.
    fn gate(&self, venue: &Venue, items: &[ItemRequest]) -> Option<Refusal> {
        let is_current = || self.shared.is_up() && self.shared.sight.behind().is_none();
        let hall = self.shared.halls.known(venue.number.0.cast_signed()).filter(|_| is_current())?;
        let refusal = hall
            .feed
            .look(|summary, seats| plainly_refused(summary, seats, items, |taken| hall.were_taken(taken)))?;
        self.shared.meters.refused(&refusal);
        Some(refusal)
    }

    async fn execute(&self, request: Request) -> Result<Done, EngineError> {
        if let Some(hold) = request.needs_secret_of() {
            self.require_secret(hold, request.secret)?;
        }
        let Some(gate) = &self.gate else { return self.carry_out(request).await };
        if let Command::CreateHold(create) = &request.command
            && let Some(hall) = self.shared.halls.known(create.event.0.cast_signed())
        {
            let entered = gate.enter(&hall, create, request.key).await;
            let claim = entered.inspect_err(|refusal| self.shared.meters.refused(refusal))?;
            return self.carry_out_claimed(request, gate, hall, claim).await;
        }
        let done = self.carry_out(request).await?;
        if let Some(hall) = self.shared.halls.known(done.venue.number.0.cast_signed())
            && let Some(settlement) = gate.settlement(&hall, None, Ok(&done))
        {
            // What was given back can be had at once.
            gate.settle(settlement).await;
        }
        Ok(done)
    }

    async fn event(&self, venue: &Venue) -> Result<EventSummary, EngineError> {
        Ok(self.hall_of(venue).await?.feed.summary())
    }

    async fn has_had(&self, venue: &Venue, version: Version) -> Result<bool, EngineError> {
        let (hall, begun) = (self.hall_of(venue).await?, Instant::now());
        while hall.feed.summary().version.number < version.number {
            match self.behind() {
                _ if begun.elapsed() < READ_WITHIN => tokio::time::sleep(LOOK_AGAIN_AFTER).await,
                None => return Ok(false),
                Some(_) => return Err(EngineError::Unavailable),
            }
        }
        Ok(true)
    }

    async fn events(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Page<(Arc<Venue>, EventSummary)>, EngineError> {
        let look = |reader: Arc<Reader>| async move { reads::events(&reader.client, after, limit).await };
        let page = self.shared.read(look).await?;
        let halls = &self.shared.halls;
        let mut items = Vec::with_capacity(page.items.len());
        for number in page.items {
            let load = |reader: Arc<Reader>| async move { halls.get(&reader.client, number).await };
            let hall = self.shared.read(load).await?;
            items.extend(hall.map(|hall| (Arc::clone(&hall.venue), hall.feed.summary())));
        }
        Ok(Page { items, more: page.more })
    }

    async fn availability(&self, venue: &Venue, since: Since) -> Result<Availability, EngineError> {
        Ok(self.hall_of(venue).await?.feed.availability(since))
    }

    async fn subscribe(&self, venue: &Venue, since: Since) -> Result<Subscription, EngineError> {
        Ok(self.hall_of(venue).await?.feed.subscribe(since))
    }

    async fn hold(&self, hold: HoldId, secret: Option<HoldSecret>) -> Result<Done, EngineError> {
        self.require_secret(hold, secret)?;
        let halls = &self.shared.halls;
        let look = |reader: Arc<Reader>| async move { reads::hold(&reader.client, halls, hold).await };
        self.shared.read(look).await?.ok_or_else(|| Refusal::NotFound.into())
    }

    async fn holds(&self, venue: &Venue, after: u64, limit: usize) -> Result<Page<(u64, Hold)>, EngineError> {
        let look =
            |reader: Arc<Reader>| async move { reads::holds(&reader.client, venue, after, limit).await };
        self.shared.read(look).await
    }

    async fn refunds(
        &self,
        venue: &Venue,
        after: u64,
        limit: usize,
    ) -> Result<Page<(u64, RefundsDue)>, EngineError> {
        let look =
            |reader: Arc<Reader>| async move { reads::refunds(&reader.client, venue, after, limit).await };
        self.shared.read(look).await
    }

    async fn blocks(
        &self,
        venue: &Venue,
        after: u64,
        limit: usize,
    ) -> Result<Page<(u64, Block)>, EngineError> {
        let look =
            |reader: Arc<Reader>| async move { reads::blocks(&reader.client, venue, after, limit).await };
        self.shared.read(look).await
    }

    async fn log(&self, venue: &Venue, query: LogQuery) -> Result<LogPage, EngineError> {
        let (epoch, query) = (self.shared.halls.epoch(), &query);
        let look = |reader: Arc<Reader>| async move {
            history::look_back(&reader.client, venue, epoch, query).await
        };
        self.shared.look_back(look).await
    }

    async fn booking(&self, booking: BookingId) -> Result<Done, EngineError> {
        let halls = &self.shared.halls;
        let look = |reader: Arc<Reader>| async move { reads::booking(&reader.client, halls, booking).await };
        self.shared.read(look).await?.ok_or_else(|| Refusal::NotFound.into())
    }

    async fn remembered(
        &self,
        hold: HoldId,
        secret: Option<HoldSecret>,
        key: IdempotencyKey,
    ) -> Result<Option<Done>, EngineError> {
        if !self.shared.key.proves(hold, secret) {
            return Ok(None);
        }
        let halls = &self.shared.halls;
        let look = |reader: Arc<Reader>| async move { reads::answer(&reader.client, halls, &key).await };
        let Some(row) = self.shared.read(look).await? else { return Ok(None) };
        remembered::done_of(&row, &key, &self.shared.halls).map(Some)
    }

    async fn replicas(&self) -> Result<Vec<Replica>, EngineError> {
        let this = &self.shared.name;
        let look = |reader: Arc<Reader>| async move { replicas::connected(&reader.client, this).await };
        self.shared.read(look).await
    }

    fn proves(&self, hold: HoldId, secret: Option<HoldSecret>) -> bool {
        self.shared.key.proves(hold, secret)
    }

    fn secret_of(&self, hold: HoldId) -> HoldSecret {
        self.shared.key.secret_of(hold)
    }

    fn key_for(&self, purpose: &str) -> SecretKey {
        self.shared.key.for_purpose(purpose)
    }

    fn key_of_process(&self, purpose: &str) -> SecretKey {
        // Any number of servers have the ledger's key.
        self.process.for_purpose(purpose)
    }

    fn now(&self) -> Timestamp {
        self.shared.now()
    }

    fn is_ready(&self) -> bool {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // A task that ended before it was told to had a defect; this server is of no more use.
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.is_up()
            && queue.as_ref().is_some_and(|queue| queue.capacity() > 0)
            && !tasks.iter().any(JoinHandle::is_finished)
    }

    fn behind(&self) -> Option<Duration> {
        self.shared.sight.behind()
    }

    fn meters(&self) -> &Meters {
        &self.shared.meters
    }

    async fn backup(&self, _to: &Path) -> Result<(), EngineError> {
        Err(EngineError::Backup("the ledger is backed up with PostgreSQL's own tools".to_owned()))
    }

    async fn close(&self) {
        self.shared.close();
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.stop.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the ledger did not end well");
            }
        }
    }
}

impl Drop for ClusterEngine {
    fn drop(&mut self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }
}
