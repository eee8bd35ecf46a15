//! The writer: one thread that applies what has queued, commits it together, and then answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold_core::{
    BookingState, Changes, Command, EventNo, Item, ItemRequest, Kind, Refusal, Reply, State, Timestamp,
    Touched,
};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::answer::write_answer;
use super::bugs::{Bug, planted};
use super::hall::Hall;
use super::journal::{change_of, put_entry};
use super::load::Tables;
use super::messenger::{Answer, Messenger, News, Saying};
use super::projection::Projection;
use super::shared::{Job, Read, Reading, Shared};
use super::store::Store;
use crate::answer::put_answer;
use crate::{Change, Done, EngineError, EventSummary, IdempotencyKey, Outcome, Request};

/// Holds that are ended with one commit, so that a storm of expiries cannot stall the rest.
const EXPIRIES_PER_COMMIT_MAX: usize = 2_048;
/// When so many commands are put off, no others are taken.
const PUT_OFF_MAX: usize = 16_384;
/// After so long without a command the writer takes time for other things.
const IDLE_AFTER: Duration = Duration::from_millis(2);
/// The writer looks after expired holds at least this often.
const TICK: Duration = Duration::from_millis(200);
/// About so much is written before the write-ahead log is moved into the file.
const CHECKPOINT_BYTES: usize = 8 * 1024 * 1024;
/// Entries that stay in the journal behind the tables, for readers of the stream that come back.
const HISTORY_ENTRIES: u64 = 65_536;
/// Answers trimmed with one commit, at least.
const ANSWERS_TRIMMED_MIN: usize = 256;
/// Journal rows trimmed with one commit.
const TRIM_ROWS: u32 = 8;

/// The only one who changes anything.
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) store: Store,
    pub(crate) state: State,
    pub(crate) halls: Vec<Arc<Hall>>,
    pub(crate) projection: Projection,
    /// Everything up to here is in the tables.
    pub(crate) floor: u64,
    /// The number of the newest answer under a key.
    last_answer: u64,
    messenger: Messenger,
    batch: Batch,
    /// Commands that wait until more of the holds that are over have been ended. They come first in the next batch.
    put_off: Vec<Job>,
    /// What was taken from the queue; the buffer is reused.
    queued: Vec<Job>,
    since_checkpoint: usize,
    trimmable: bool,
    /// When the slower of the gauges were set.
    measured: Option<Instant>,
}

/// What one commit is made of. The buffers are reused.
#[derive(Default)]
struct Batch {
    changes: Changes,
    /// The journal row.
    journal: Vec<u8>,
    first_seq: u64,
    /// Changes for readers, to be published after the commit.
    published: Vec<(EventNo, Change)>,
    /// Sales made and undone, with the booking's number.
    sales: Vec<Sale>,
    /// What is remembered under keys, each with a number of its own.
    answers: Vec<(u64, IdempotencyKey, Vec<u8>)>,
    replies: Vec<Pending>,
    reads: Vec<Read>,
    storm: Storm,
    forget_answers_below: Option<u64>,
}

/// Whether more holds are over than one commit ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Storm {
    /// No hold is over.
    #[default]
    None,
    /// Some are; a command may have to wait for them.
    Due,
    /// Some are, and a command waits for them: so do all others that ask for what they may give back.
    InTheWay,
}

/// Event, seat, the booking's number, and whether it was made or undone.
type Sale = (EventNo, u32, u64, BookingState);

/// A reply that waits for the commit.
struct Pending {
    reply: oneshot::Sender<Result<Done, EngineError>>,
    key: Option<IdempotencyKey>,
    result: Result<(Outcome, EventNo), Refusal>,
    /// The number under which the answer is remembered.
    answer: Option<u64>,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        store: Store,
        state: State,
        halls: Vec<Arc<Hall>>,
        tables: Tables,
        messenger: Messenger,
    ) -> Self {
        Self {
            shared,
            store,
            state,
            halls,
            projection: Projection::onto(tables.venues),
            floor: tables.floor,
            last_answer: tables.last_answer,
            messenger,
            batch: Batch { forget_answers_below: tables.forgotten_answers, ..Batch::default() },
            put_off: Vec::new(),
            queued: Vec::new(),
            since_checkpoint: 0,
            trimmable: true,
            measured: None,
        }
    }

    /// Works until the queue is closed and empty, or a commit fails.
    pub(crate) fn run(mut self) -> Result<(), rusqlite::Error> {
        let mut jobs = Vec::new();
        while self.take_jobs(&mut jobs) {
            let now = self.shared.clock.now();
            let commands = jobs.len();
            self.batch.first_seq = self.state.seq() + 1;
            self.expire(now, commands);
            self.forget(now, commands);
            for job in jobs.drain(..) {
                self.take_job(job, now);
            }
            self.shared.set_next_due(self.state.next_due());
            if planted(Bug::AnswerBeforeCommit) && self.halls.len() == self.state.events().len() {
                self.tell(now);
                std::thread::sleep(Duration::from_millis(3));
            }
            let committed = self.commit(now, commands);
            if planted(Bug::AnswerAfterFailedCommit) && committed.is_err() {
                self.tell(now);
                std::thread::sleep(Duration::from_millis(100));
            }
            committed?;
            self.measure(now);
            self.tell(now);
            if planted(Bug::IdempotencyOutsideCommit) {
                std::thread::sleep(Duration::from_millis(3));
                self.write_late_answers(now)?;
            }
        }
        // Everything is committed; a file that was not tidied is tidied by the next start.
        if let Err(error) = self.checkpoint() {
            tracing::warn!(%error, "the last checkpoint failed");
        }
        Ok(())
    }

    /// What was put off, and after it what has queued. False when everything is done and nothing will come.
    fn take_jobs(&mut self, jobs: &mut Vec<Job>) -> bool {
        let mut queued = std::mem::take(&mut self.queued);
        let full = self.put_off.len() >= PUT_OFF_MAX;
        let open = full || self.shared.queue.take(&mut queued, Some(self.next_wake()));
        jobs.append(&mut self.put_off);
        jobs.append(&mut queued);
        self.queued = queued;
        open || !jobs.is_empty()
    }

    fn next_wake(&self) -> Instant {
        let now = Instant::now();
        if !self.put_off.is_empty() {
            return now;
        }
        let due = self.state.next_due().map(|due| due.since(self.shared.clock.now()).0);
        let due = due.map_or(TICK, |millis| Duration::from_millis(millis).min(TICK));
        let work = if self.trims() { Some(now) } else { self.projection.next_work(now) };
        // What is written behind rides on commits of commands; it only gets commits of its own when none come.
        let work = work.map_or(now + TICK, |at| at.max(now + IDLE_AFTER));
        (now + due.max(IDLE_AFTER)).min(work)
    }

    /// At least twice as many as can be granted in this batch, so that the surplus of a storm melts away.
    fn expire(&mut self, now: Timestamp, commands: usize) {
        let count = EXPIRIES_PER_COMMIT_MAX.max(2 * commands);
        self.state.expire_due(now, count, &mut self.batch.changes);
        let due = self.state.next_due().is_some_and(|due| due <= now);
        self.batch.storm = if due { Storm::Due } else { Storm::None };
        self.record();
    }

    /// Twice as many as can have ended, so that a surplus melts away.
    fn forget(&mut self, now: Timestamp, commands: usize) {
        self.state.forget_ended(now, 2 * commands + 2 * EXPIRIES_PER_COMMIT_MAX, &mut self.batch.changes);
        self.record();
    }

    fn take_job(&mut self, job: Job, now: Timestamp) {
        match job {
            Job::Execute { request, reply } => self.execute(*request, reply, now),
            Job::Read(read) => self.batch.reads.push(read),
        }
    }

    fn execute(
        &mut self,
        request: Request,
        reply: oneshot::Sender<Result<Done, EngineError>>,
        now: Timestamp,
    ) {
        if self.batch.storm == Storm::InTheWay && asks_for_any(&request.command) {
            self.put_off.push(Job::Execute { request: Box::new(request), reply });
            return;
        }
        // Only in a storm can a command have to be asked again.
        let again = (self.batch.storm != Storm::None).then(|| request.command.clone());
        let result = self.state.apply(request.command, now, &mut self.batch.changes);
        self.record();
        if let (Err(Refusal::NotYet), Some(command)) = (&result, again) {
            self.batch.storm = Storm::InTheWay;
            self.put_off.push(Job::Execute { request: Box::new(Request { command, ..request }), reply });
            return;
        }
        let result = result.map(|reply| self.outcome(reply));
        if let Err(refusal) = &result {
            self.shared.meters.refused(refusal);
        }
        let mut answer = None;
        // Also what changed nothing: asked again later, the same request might.
        if let (Some(key), Ok((outcome, event))) = (request.key, &result) {
            self.last_answer += 1;
            answer = Some(self.last_answer);
            let mut bytes = Vec::with_capacity(128);
            put_answer(&mut bytes, *event, outcome);
            self.batch.answers.push((self.last_answer, key, bytes));
        }
        self.batch.replies.push(Pending { reply, key: request.key, result, answer });
    }

    fn outcome(&self, reply: Reply) -> (Outcome, EventNo) {
        match reply {
            Reply::Event(event) => {
                let known = self.state.event(event).expect("the event was just changed");
                (Outcome::Event(EventSummary::of(known, self.state.epoch())), event)
            }
            Reply::Hold(hold) => {
                let event = hold.event;
                (Outcome::Hold(hold), event)
            }
            Reply::Booking(booking) => {
                let event = booking.event;
                (Outcome::Booking(booking), event)
            }
            Reply::Block(block) => {
                let event = block.event;
                (Outcome::Block(block), event)
            }
            Reply::BlockGone(event) => (Outcome::BlockGone, event),
            Reply::RefundDue(event, reference) => (Outcome::RefundDue(reference), event),
        }
    }

    /// Turns what was just changed into journal bytes, marks, gate settings and changes for readers.
    fn record(&mut self) {
        let Self { state, batch, projection, halls, shared, .. } = self;
        let Batch { changes, journal, published, sales, .. } = batch;
        for entry in &changes.entries {
            put_entry(journal, state, changes, entry);
            shared.meters.count(entry.kind);
            projection.mark_version(entry.event);
            for touched in changes.touched_by(entry) {
                projection.mark(touched, state);
                if let Some(hall) = halls.get(entry.event.0 as usize) {
                    hall.pass_on(touched, state);
                }
                match touched {
                    Touched::Booking(slot) => {
                        let booking = state.booking_at(*slot).expect("it was just touched");
                        sales.extend(booking.items.iter().filter_map(|item| match item {
                            Item::Seat { seat, .. } => {
                                Some((booking.event, seat.0, booking.number, booking.state))
                            }
                            Item::Pool { .. } => None,
                        }));
                    }
                    Touched::Hold(slot) if ends(entry.kind) => {
                        let hold = state.hold_at(*slot).expect("it was just touched");
                        shared
                            .meters
                            .hold_seconds
                            .observe(entry.at.since(hold.created_at).0 as f64 / 1_000.0);
                    }
                    _ => {}
                }
            }
            published.push((entry.event, change_of(state, changes, entry)));
        }
        changes.forgotten.iter().for_each(|forgotten| projection.mark(forgotten, state));
        changes.clear();
    }

    fn commit(&mut self, now: Timestamp, commands: usize) -> rusqlite::Result<()> {
        let begun = Instant::now();
        let projects = self.projection.next_work(begun).is_some_and(|at| at <= begun);
        let written = !self.batch.journal.is_empty();
        if !written && self.batch.answers.is_empty() && !projects && !self.trims() {
            return Ok(());
        }
        let (first, last) = (self.batch.first_seq, self.state.seq());
        let transaction = &self.store.connection;
        transaction.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        if written {
            let sql = "INSERT INTO journal (first_seq, last_seq, at_ms, entries) VALUES (?1, ?2, ?3, ?4)";
            let row = (first, last, now.as_millis(), &self.batch.journal);
            transaction.prepare_cached(sql)?.execute(row)?;
        }
        write_sales(transaction, &mut self.batch.sales)?;
        if !planted(Bug::IdempotencyOutsideCommit) {
            for (number, key, answer) in self.batch.answers.drain(..) {
                write_answer(transaction, number, &key, now, &answer)?;
            }
        }
        self.batch.forget_answers_below =
            self.batch.forget_answers_below.max(self.shared.keys.take_forgotten());
        if let Some(below) = self.batch.forget_answers_below {
            let sql = "DELETE FROM answers WHERE seq IN
                       (SELECT seq FROM answers WHERE seq <= ?1 ORDER BY seq LIMIT ?2)";
            let count = 2 * commands + ANSWERS_TRIMMED_MIN;
            if transaction.prepare_cached(sql)?.execute((below, count))? < count {
                self.batch.forget_answers_below = None;
            }
        }
        let backlog = last - self.floor;
        let stepped = self.projection.step(transaction, &self.state, commands, backlog)?;
        if let Some(floor) = stepped.floor {
            self.floor = floor;
            self.trimmable = true;
        }
        if self.trims() {
            let upto = self.trim_end();
            let sql = "DELETE FROM journal WHERE last_seq IN
                       (SELECT last_seq FROM journal WHERE last_seq <= ?1 ORDER BY last_seq LIMIT ?2)";
            let trimmed = transaction.prepare_cached(sql)?.execute((upto, TRIM_ROWS))?;
            self.trimmable = trimmed == TRIM_ROWS as usize;
        }
        transaction.prepare_cached("COMMIT")?.execute([])?;
        if written {
            self.shared.meters.commit_seconds.observe(begun.elapsed().as_secs_f64());
            self.shared.meters.commit_commands.observe(commands as f64);
        }
        self.since_checkpoint += self.batch.journal.len() + stepped.rows * 160 + 8_192;
        self.batch.journal.clear();
        if self.since_checkpoint > CHECKPOINT_BYTES {
            self.checkpoint()?;
        }
        Ok(())
    }

    fn measure(&mut self, now: Timestamp) {
        self.shared.meters.tables_behind.set((self.state.seq() - self.floor) as i64);
        // Counting takes longer the more there are, and nobody looks at it so often.
        if self.measured.is_none_or(|at| at.elapsed() >= TICK) {
            self.measured = Some(Instant::now());
            self.shared.meters.holds_overdue.set(self.state.overdue(now) as i64);
        }
    }

    fn trims(&self) -> bool {
        self.trimmable && self.trim_end() > 0
    }

    fn trim_end(&self) -> u64 {
        self.floor.min(self.state.seq().saturating_sub(HISTORY_ENTRIES))
    }

    fn checkpoint(&mut self) -> rusqlite::Result<()> {
        self.since_checkpoint = 0;
        self.store.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
    }

    /// Tells everyone what is durable now.
    fn tell(&mut self, now: Timestamp) {
        for number in self.halls.len()..self.state.events().len() {
            let hall =
                Arc::new(Hall::new(&self.state.events()[number], &self.state, &self.shared.changes_kept));
            self.halls.push(Arc::clone(&hall));
            self.shared.add_hall(hall);
        }
        let room = Vec::with_capacity(self.batch.published.len());
        let changes = std::mem::replace(&mut self.batch.published, room);
        let mut changed: Vec<EventNo> = changes.iter().map(|(event, _)| *event).collect();
        changed.sort_unstable();
        changed.dedup();
        let events = changed.into_iter().map(|event| {
            let known = self.state.event(event).expect("an entry has an event");
            (Arc::clone(&self.halls[event.0 as usize]), EventSummary::of(known, self.state.epoch()))
        });
        let events = events.collect();
        let (answers, keys) = self.answers(now);
        let shared = Arc::clone(&self.shared);
        let before_answers =
            (!keys.is_empty()).then(|| -> Saying { Box::new(move || shared.keys.all_answered(&keys, now)) });
        let reading = Reading { state: &self.state, halls: &self.halls };
        let sayings = self.batch.reads.drain(..).map(|read| read(&reading)).collect();
        let news = News { changes, events, before_answers, answers, sayings };
        if !news.is_empty() {
            self.messenger.deliver(news);
        }
    }

    /// What callers are told, and which keys have an answer from now on.
    fn answers(&mut self, now: Timestamp) -> (Vec<Answer>, Vec<(u128, u64)>) {
        let mut answers = Vec::with_capacity(self.batch.replies.len());
        let mut keys = Vec::new();
        for pending in self.batch.replies.drain(..) {
            match (pending.key, pending.answer) {
                (Some(key), Some(number)) => keys.push((key.scope, number)),
                (Some(key), None) => self.shared.keys.abandon(&key),
                (None, _) => {}
            }
            let result = match pending.result {
                Ok((outcome, event)) => match self.halls.get(event.0 as usize) {
                    Some(hall) => {
                        Ok(Done { outcome, venue: Arc::clone(&hall.venue), at: now, replayed: false })
                    }
                    None => Err(EngineError::Unknown),
                },
                Err(refusal) => Err(EngineError::Refused(refusal)),
            };
            answers.push((pending.reply, result));
        }
        (answers, keys)
    }

    fn write_late_answers(&mut self, now: Timestamp) -> rusqlite::Result<()> {
        let transaction = self.store.connection.unchecked_transaction()?;
        for (number, key, answer) in self.batch.answers.drain(..) {
            write_answer(&transaction, number, &key, now, &answer)?;
        }
        transaction.commit()
    }
}

/// The sale's key is checked here, before anyone is told that a seat is sold.
fn write_sales(connection: &Connection, sales: &mut Vec<Sale>) -> rusqlite::Result<()> {
    for (event, seat, booking, state) in sales.drain(..) {
        match state {
            BookingState::Booked => {
                let sql = "INSERT INTO sales (event_no, seat_no, booking_no) VALUES (?1, ?2, ?3)";
                connection.prepare_cached(sql)?.execute((event.0, seat, booking))?;
            }
            BookingState::Cancelled => {
                let sql = "DELETE FROM sales WHERE event_no = ?1 AND seat_no = ?2 AND booking_no = ?3";
                connection.prepare_cached(sql)?.execute((event.0, seat, booking))?;
            }
        }
    }
    Ok(())
}

/// Whether a command asks for something that any hold may give back, and not only for seats by name.
fn asks_for_any(command: &Command) -> bool {
    let items = match command {
        Command::CreateHold(create) => &create.items,
        Command::AmendHold(amend) => &amend.add,
        Command::CreateBlock(create) => &create.items,
        _ => return false,
    };
    items.iter().any(|item| !matches!(item, ItemRequest::Seat(_)))
}

fn ends(kind: Kind) -> bool {
    matches!(kind, Kind::HoldExpired | Kind::HoldReleased | Kind::HoldRevoked | Kind::BookingCreated)
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
    }
}
