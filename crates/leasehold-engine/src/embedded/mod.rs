//! The embedded engine: one process, one SQLite file, everything in memory, one writer.
//!
//! A caller's command goes through the [`gate`], which refuses what is plainly taken, into the [`queue`]. The
//! [`writer`] applies everything that has queued with one timestamp, commits it as one row of the [`journal`],
//! publishes it to the readers' [`feed`](crate::feed) and only then answers. The tables follow behind: [`projection`].
//! A restart is in [`load`].

mod answer;
mod bugs;
mod check;
mod gate;
mod hall;
mod history;
mod journal;
mod keys;
#[cfg(feature = "cluster")]
mod leaving;
mod load;
mod messenger;
mod projection;
mod queue;
mod shared;
mod store;
mod writer;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Block, BookingId, Changes, Command, Hold, HoldId, ItemRequest, Name, PaymentState, Reference, Refusal,
    State, Timestamp,
};
use tokio::sync::oneshot;

pub use check::{CheckReport, check_file};
pub use store::{OpenError, backup_file};

use self::answer::{Found, read_answer};
use self::bugs::{Bug, planted};
use self::hall::Hall;
use self::keys::Begin;
pub(crate) use self::keys::{ANSWERS_AGE_MAX, ANSWERS_MAX};
#[cfg(feature = "cluster")]
pub(crate) use self::leaving::{KeptAnswer, Leaving};
use self::load::Tables;
use self::messenger::{Messenger, News, Saying};
use self::queue::{Rejected, Weight};
use self::shared::{Job, Reading, Shared};
#[cfg(feature = "cluster")]
pub(crate) use self::store::Departure;
use self::store::Store;
use self::writer::Writer;
use crate::{
    Availability, Clock, Done, Engine, EngineError, EventSummary, HoldSecret, IdempotencyKey, LogPage,
    LogQuery, Meters, Outcome, Page, RefundsDue, Replica, Request, SecretKey, Since, Subscription, Venue,
    Version,
};

/// Holds that one read looks at, while commands wait.
const SLOTS_PER_READ: u32 = 4_096;

/// How to open a data file.
pub struct EmbeddedOptions {
    path: PathBuf,
    clock: Clock,
    queue_length_max: usize,
    on_fatal: Box<dyn FnOnce(&str) + Send>,
}

/// See the [crate documentation](crate) and this module's.
#[derive(Debug)]
pub struct EmbeddedEngine {
    shared: Arc<Shared>,
    path: PathBuf,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl EmbeddedOptions {
    /// The data file at `path`, created when absent; the machine's clock.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            clock: Clock::system(),
            queue_length_max: 16_384,
            on_fatal: Box::new(|message| tracing::error!("{message}")),
        }
    }

    /// Takes the time from this clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sheds commands when this many wait.
    pub fn queue_length_max(mut self, length: usize) -> Self {
        self.queue_length_max = length;
        self
    }

    /// Does this when a commit failed. Nothing is acknowledged any more: the process should end.
    pub fn on_fatal(mut self, on_fatal: impl FnOnce(&str) + Send + 'static) -> Self {
        self.on_fatal = Box::new(on_fatal);
        self
    }
}

impl std::fmt::Debug for EmbeddedOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedOptions").field("path", &self.path).finish_non_exhaustive()
    }
}

impl EmbeddedEngine {
    /// Opens the file, brings everything back, and starts the writer.
    pub fn open(options: EmbeddedOptions) -> Result<Self, OpenError> {
        let mut store = Store::open_to_serve(&options.path)?;
        let (key, epoch) = store.identity(options.clock.now())?;
        let at = |source| OpenError::Sqlite { path: options.path.clone(), source };
        let checking = store.quick_check();
        let loaded = load::load(&store.connection, &options.path, epoch);
        checking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let mut loaded = loaded?;
        let clock = options.clock.not_before(loaded.last_time);
        // What was forgotten before the end, and is still in the file, is not known again for a moment.
        let mut forgotten = Changes::default();
        loaded.state.forget_ended(clock.now(), usize::MAX, &mut forgotten);
        loaded.behind.append(&mut forgotten.forgotten);
        let reader = Store::reader(&options.path).map_err(at)?;
        let shared = Arc::new(Shared::new(options.queue_length_max, clock, key, reader));
        let forgotten_answers = load_keys(&store, &shared).map_err(at)?;
        let tables = Tables::of(&store.connection).map_err(at)?;
        let tables = Tables { venues: loaded.venues, forgotten_answers, ..tables };

        let mut halls: Vec<Arc<Hall>> = Vec::new();
        for event in loaded.state.events() {
            halls.push(Arc::new(Hall::new(event, &loaded.state, &shared.changes_kept)));
        }
        for (event, change) in loaded.history {
            halls[event.0 as usize].feed.recall(change);
        }
        halls.iter().for_each(|hall| shared.add_hall(Arc::clone(hall)));
        shared.set_next_due(loaded.state.next_due());
        let messenger = Messenger::start();
        let mut writer =
            Writer::new(Arc::clone(&shared), store, loaded.state, halls, tables, messenger.clone());
        for touched in &loaded.behind {
            writer.projection.mark(touched, &writer.state);
        }
        for event in writer.state.events() {
            writer.projection.mark_version(event.number);
        }
        tracing::info!(
            path = %options.path.display(),
            events = writer.state.events().len(),
            entries = writer.state.seq(),
            replayed = loaded.replayed,
            "opened the data file"
        );
        let thread = std::thread::Builder::new().name("leasehold-writer".to_owned());
        let (path, on_fatal) = (options.path.clone(), options.on_fatal);
        let running = Arc::clone(&shared);
        let writer = thread
            .spawn(move || {
                // A panic is a broken rule: like a commit that failed, nothing may be acknowledged after it.
                let ended = catch_unwind(AssertUnwindSafe(|| writer.run()));
                running.closed.store(true, Ordering::SeqCst);
                running.queue.close_and_clear();
                let failure = match ended {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(failed_commit(&path, &error)),
                    Err(_) => Some((
                        format!("the writer of {} broke one of its own rules.", path.display()),
                        "This is a defect: keep the file and the log, and report it.",
                    )),
                };
                if let Some((failure, advice)) = failure {
                    on_fatal(&format!("{failure} Nothing is acknowledged any more. {advice}"));
                }
                let end: Saying = Box::new(move || running.halls().iter().for_each(|hall| hall.feed.end()));
                messenger.deliver(News { sayings: vec![end], ..News::default() });
            })
            .map_err(|source| OpenError::Io { path: options.path.clone(), source })?;
        Ok(Self { shared, path: options.path, writer: Mutex::new(Some(writer)) })
    }

    /// Looks at the durable state, on the writer's thread.
    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Reading<'_>) -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        if self.shared.closed.load(Ordering::SeqCst) {
            return Err(EngineError::Closed);
        }
        let (sender, receiver) = oneshot::channel();
        let read = Box::new(move |reading: &Reading<'_>| {
            let seen = look(reading);
            Box::new(move || drop(sender.send(seen))) as Saying
        });
        self.push(Job::Read(read), Weight::Begun)?;
        receiver.await.map_err(|_| EngineError::Closed)
    }

    /// Picks from the holds after a place.
    async fn look_through_holds<T: Send + 'static>(
        &self,
        after: u64,
        limit: usize,
        pick: impl Fn(&State, &Hold) -> Option<T> + Copy + Send + 'static,
    ) -> Result<Page<(u64, T)>, EngineError> {
        let look = move |state: &State, slots: Range<u32>| {
            let holds = state.holds_in(slots);
            let picked =
                holds.filter_map(|(slot, hold)| Some((u64::from(slot.0) + 1, pick(state, hold)?))).collect();
            (picked, state.hold_slots())
        };
        self.look_through(after, limit, look).await
    }

    /// Looks through slots after a place, a piece at a time, so that commands get through in between. `look` gives what
    /// it finds in some of the slots, each with its place, and how many slots there are.
    async fn look_through<T: Send + 'static>(
        &self,
        after: u64,
        limit: usize,
        look: impl Fn(&State, Range<u32>) -> (Vec<(u64, T)>, u32) + Copy + Send + 'static,
    ) -> Result<Page<(u64, T)>, EngineError> {
        let mut items = Vec::new();
        let mut next = u32::try_from(after).ok();
        while let Some(from) = next
            && items.len() <= limit
        {
            let piece = self.read(move |reading| {
                let end = from.saturating_add(SLOTS_PER_READ);
                let (picked, slots) = look(reading.state, from..end);
                (picked, (end < slots).then_some(end))
            });
            let (picked, end) = piece.await?;
            items.extend(picked);
            next = end;
        }
        let more = items.len() > limit;
        items.truncate(limit);
        Ok(Page { items, more })
    }

    fn push(&self, job: Job, weight: Weight) -> Result<(), EngineError> {
        self.shared.queue.push(job, weight).map_err(|(rejected, job)| {
            if let Job::Execute { request, .. } = &job
                && let Some(key) = &request.key
            {
                self.shared.keys.abandon(key);
            }
            match rejected {
                Rejected::Full => {
                    self.shared.meters.shed.inc();
                    EngineError::Overloaded
                }
                Rejected::Closed => EngineError::Closed,
            }
        })
    }

    fn check_secret(&self, request: &Request) -> Result<(), EngineError> {
        if planted(Bug::NoOwnerCheckOnRelease) && matches!(request.command, Command::ReleaseHold(_)) {
            return Ok(());
        }
        match request.needs_secret_of() {
            Some(hold) if !self.shared.key.proves(hold, request.secret) => Err(Refusal::NotFound.into()),
            _ => Ok(()),
        }
    }

    async fn replay(&self, number: u64, key: IdempotencyKey) -> Result<Done, EngineError> {
        let shared = Arc::clone(&self.shared);
        let found = tokio::task::spawn_blocking(move || {
            let reader = shared.reader.lock().unwrap_or_else(PoisonError::into_inner);
            read_answer(&reader, number, &key)
        });
        let found = found.await.map_err(|_| EngineError::Closed)?.map_err(|error| {
            tracing::error!(%error, number, "an answer could not be read");
            EngineError::Unknown
        })?;
        match found {
            Found::Answer(answer) => {
                let hall = self.shared.hall_at(answer.event.0 as usize).ok_or(EngineError::Unknown)?;
                self.shared.meters.replayed.inc();
                let venue = Arc::clone(&hall.venue);
                Ok(Done { outcome: answer.outcome, venue, at: answer.at, replayed: true })
            }
            Found::Mismatch => Err(EngineError::KeyMismatch),
            Found::Nothing => Err(EngineError::InFlight),
        }
    }

    fn hall_of(&self, venue: &Venue) -> Result<Arc<Hall>, EngineError> {
        self.shared.hall_at(venue.number.0 as usize).ok_or_else(|| Refusal::NotFound.into())
    }
}

/// What happened to a commit, and what to do about it.
fn failed_commit(path: &Path, error: &rusqlite::Error) -> (String, &'static str) {
    let advice = match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::ConstraintViolation) => {
            "A key of the data file refused what would have been there twice. This is a defect, or somebody else \
             wrote to the file: keep it and the log, and report it."
        }
        _ => "The disk or file system refused a write or an fsync; find out why, then restart.",
    };
    (format!("a commit to {} failed: {error}.", path.display()), advice)
}

#[async_trait]
impl Engine for EmbeddedEngine {
    async fn venue(&self, event: &str) -> Result<Option<Arc<Venue>>, EngineError> {
        Ok(self.shared.hall(event).map(|hall| Arc::clone(&hall.venue)))
    }

    fn gate(&self, venue: &Venue, items: &[ItemRequest]) -> Option<Refusal> {
        if self.shared.closed.load(Ordering::SeqCst) {
            // Nothing that was decided last may have been committed: nobody is refused because of it.
            return None;
        }
        let hall = self.shared.hall_at(venue.number.0 as usize)?;
        let now = self.shared.clock.now();
        let refusal = hall.gate.refusal(items, now, self.shared.nothing_due(now))?;
        self.shared.meters.refused(&refusal);
        Some(refusal)
    }

    async fn execute(&self, request: Request) -> Result<Done, EngineError> {
        if self.shared.closed.load(Ordering::SeqCst) {
            return Err(EngineError::Closed);
        }
        self.check_secret(&request)?;
        let key = request.key;
        if let Some(key) = key {
            // A repetition is recognised before the gate could refuse it because of its own hold.
            match self.shared.keys.begin(&key) {
                Begin::New => {}
                Begin::InFlight => return Err(EngineError::InFlight),
                Begin::Mismatch => return Err(EngineError::KeyMismatch),
                Begin::Answered(number) => return self.replay(number, key).await,
            }
        }
        let mut weight = Weight::Begun;
        if let Command::CreateHold(create) = &request.command {
            weight = Weight::New;
            let hall = self.shared.hall_at(create.event.0 as usize);
            if let Some(refusal) = hall.and_then(|hall| self.gate(&hall.venue, &create.items)) {
                if let Some(key) = key {
                    self.shared.keys.abandon(&key);
                }
                return Err(refusal.into());
            }
        }
        let (sender, receiver) = oneshot::channel();
        self.push(Job::Execute { request: Box::new(request), reply: sender }, weight)?;
        // The writer answers everything it took, unless a commit failed under it.
        receiver.await.map_err(|_| EngineError::Unknown)?
    }

    async fn event(&self, venue: &Venue) -> Result<EventSummary, EngineError> {
        Ok(self.hall_of(venue)?.feed.summary())
    }

    async fn has_had(&self, venue: &Venue, version: Version) -> Result<bool, EngineError> {
        Ok(version.number <= self.hall_of(venue)?.feed.summary().version.number)
    }

    async fn events(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Page<(Arc<Venue>, EventSummary)>, EngineError> {
        let halls = self.shared.halls();
        let from = match after {
            None => 0,
            Some(id) => {
                self.shared.hall(id.as_str()).map_or(halls.len(), |hall| hall.venue.number.0 as usize + 1)
            }
        };
        let items = halls.iter().skip(from).take(limit);
        let items = items.map(|hall| (Arc::clone(&hall.venue), hall.feed.summary())).collect();
        Ok(Page { items, more: halls.len() > from + limit })
    }

    async fn availability(&self, venue: &Venue, since: Since) -> Result<Availability, EngineError> {
        Ok(self.hall_of(venue)?.feed.availability(since))
    }

    async fn subscribe(&self, venue: &Venue, since: Since) -> Result<Subscription, EngineError> {
        Ok(self.hall_of(venue)?.feed.subscribe(since))
    }

    async fn hold(&self, hold: HoldId, secret: Option<HoldSecret>) -> Result<Done, EngineError> {
        if !self.shared.key.proves(hold, secret) {
            return Err(Refusal::NotFound.into());
        }
        let now = self.now();
        let found = self.read(move |reading| {
            let hold = reading.state.hold(hold)?;
            Some((hold.clone().at(now), Arc::clone(&reading.halls[hold.event.0 as usize].venue)))
        });
        let (hold, venue) = found.await?.ok_or(Refusal::NotFound)?;
        Ok(Done { outcome: Outcome::Hold(hold), venue, at: now, replayed: false })
    }

    async fn holds(&self, venue: &Venue, after: u64, limit: usize) -> Result<Page<(u64, Hold)>, EngineError> {
        let (number, now) = (venue.number, self.now());
        let live =
            move |_: &State, hold: &Hold| (hold.event == number && hold.is_live(now)).then(|| hold.clone());
        self.look_through_holds(after, limit, live).await
    }

    async fn refunds(
        &self,
        venue: &Venue,
        after: u64,
        limit: usize,
    ) -> Result<Page<(u64, RefundsDue)>, EngineError> {
        let number = venue.number;
        let refunds = move |state: &State, hold: &Hold| {
            if hold.event != number || hold.keeps_items() {
                return None;
            }
            let due = state.payments_of(hold).filter(|payment| payment.state == PaymentState::RefundDue);
            let payments: Vec<Reference> = due.map(|payment| payment.reference.clone()).collect();
            let due = RefundsDue { hold: hold.id, holder: hold.holder.clone(), payments };
            (!due.payments.is_empty()).then_some(due)
        };
        self.look_through_holds(after, limit, refunds).await
    }

    async fn blocks(
        &self,
        venue: &Venue,
        after: u64,
        limit: usize,
    ) -> Result<Page<(u64, Block)>, EngineError> {
        let number = venue.number;
        let look = move |state: &State, slots: Range<u32>| {
            let blocks = state.blocks_in(slots).filter(|(_, block)| block.event == number);
            let picked = blocks.map(|(slot, block)| (u64::from(slot.0) + 1, block.clone())).collect();
            (picked, state.block_slots())
        };
        self.look_through(after, limit, look).await
    }

    async fn log(&self, venue: &Venue, query: LogQuery) -> Result<LogPage, EngineError> {
        self.look_back(&*self.hall_of(venue)?, query).await
    }

    async fn booking(&self, booking: BookingId) -> Result<Done, EngineError> {
        let now = self.now();
        let found = self.read(move |reading| {
            let booking = reading.state.booking(booking)?;
            Some((booking.clone(), Arc::clone(&reading.halls[booking.event.0 as usize].venue)))
        });
        let (booking, venue) = found.await?.ok_or(Refusal::NotFound)?;
        Ok(Done { outcome: Outcome::Booking(booking), venue, at: now, replayed: false })
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
        match self.shared.keys.answer_of(&key) {
            Some(number) => self.replay(number, key).await.map(Some),
            None => Ok(None),
        }
    }

    async fn replicas(&self) -> Result<Vec<Replica>, EngineError> {
        Ok(Vec::new())
    }

    fn proves(&self, hold: HoldId, secret: Option<HoldSecret>) -> bool {
        // The server asks this first. With the bug a stranger gets past it, and all but a release is refused later on.
        self.shared.key.proves(hold, secret) || planted(Bug::NoOwnerCheckOnRelease)
    }

    fn secret_of(&self, hold: HoldId) -> HoldSecret {
        self.shared.key.secret_of(hold)
    }

    fn key_for(&self, purpose: &str) -> SecretKey {
        self.shared.key.for_purpose(purpose)
    }

    fn key_of_process(&self, purpose: &str) -> SecretKey {
        // The file is this process's own.
        self.key_for(purpose)
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn is_ready(&self) -> bool {
        !self.shared.closed.load(Ordering::SeqCst) && self.shared.queue.has_room()
    }

    fn behind(&self) -> Option<Duration> {
        None
    }

    fn meters(&self) -> &Meters {
        &self.shared.meters
    }

    async fn backup(&self, to: &Path) -> Result<(), EngineError> {
        let (from, to) = (self.path.clone(), to.to_owned());
        let copying = tokio::task::spawn_blocking(move || backup_file(&from, &to));
        copying.await.map_err(|_| EngineError::Closed)?.map_err(EngineError::Backup)
    }

    async fn close(&self) {
        self.shared.queue.close();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let ended = tokio::task::spawn_blocking(move || writer.join());
            if !matches!(ended.await, Ok(Ok(()))) {
                tracing::error!("the writer did not end well");
            }
        }
    }
}

impl Drop for EmbeddedEngine {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take()
            && writer.join().is_err()
        {
            tracing::error!("the writer did not end well");
        }
    }
}

/// Brings back which idempotency keys were answered. Returns the number of the last answer that is too old.
fn load_keys(store: &Store, shared: &Shared) -> rusqlite::Result<Option<u64>> {
    let now = shared.clock.now();
    let sql = "SELECT seq, scope, at_ms FROM answers ORDER BY seq DESC LIMIT ?1";
    let mut statement = store.connection.prepare(sql)?;
    let rows = statement.query_map([ANSWERS_MAX], |row| {
        let scope = u128::from_be_bytes(row.get(1)?);
        Ok((row.get::<_, u64>(0)?, scope, Timestamp::from_millis(row.get(2)?)))
    })?;
    let answers = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let (known, old): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|(_, _, at)| now < at.after(ANSWERS_AGE_MAX));
    for (number, scope, at) in known.into_iter().rev() {
        shared.keys.answered(scope, number, at);
    }
    Ok(old.first().map(|(number, ..)| *number))
}
