//! The desk: carries out a batch of commands in one transaction of the ledger, by the rules of `leasehold-core`.
//!
//! 1. `BEGIN` and `load_v1` go out together, and what else is asked: the events' rows are locked in one order, the time is read, and
//!    everything the commands need comes back.
//! 2. The rules decide, here, in microseconds.
//! 3. `write_v3` and `COMMIT` go out together.
//!
//! A server that stands still between 1 and 3 is thrown out by the database after a second, and nothing happened.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::{Command, HoldId, Refusal};
use tokio::sync::oneshot;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::connection::{
    CALL_TIME_MAX, CallError, Connection, Failure, LARGE_TIME_MAX, at_commit, before_commit, within,
};
use super::follower::{Answer, News};
use super::halls::Halls;
use super::part::{Images, Loaded, Part};
use super::remembered::{answer_row, done_of};
use super::rows::time;
use super::shared::Shared;
use super::wants::Wants;
use crate::{Done, EngineError, Request};

/// Whoever has waited for its turn for so long is turned away: the ledger stands still, or there is too much to do.
pub(crate) const QUEUED_TIME_MAX: Duration = Duration::from_secs(5);
/// Holds that are over and are ended with one transaction, for each event.
pub(crate) const DUE_MAX: i32 = 512;
/// Transactions that a batch may need because more holds were over than one ends.
const STORM_ROUNDS_MAX: usize = 10_000;

/// Of a transaction about everything that an event has. Its server may take longer between the two calls, too.
const BEGIN_LARGE: &str =
    "BEGIN; SET LOCAL statement_timeout = '60s'; SET LOCAL idle_in_transaction_session_timeout = '20s'";

/// A command and who waits for its answer.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Box<Request>,
    pub(crate) reply: oneshot::Sender<Result<Done, EngineError>>,
    /// Until it is sent for the first time.
    pub(crate) turn: Option<Turn>,
    pub(crate) in_doubt: Doubt,
}

/// Whether a job was sent before, and nobody knows whether it took effect. Whoever waits for its answer can tell, too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doubt(Arc<AtomicBool>);

impl Doubt {
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Whether a job still waits for its turn. Of the worker that takes it and the caller that has waited for too long, only one
/// gets it: so whoever is turned away knows that nothing was done.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    is_taken: Arc<AtomicBool>,
    since: Instant,
}

impl Turn {
    pub(crate) fn begin() -> Self {
        Self { is_taken: Arc::default(), since: Instant::now() }
    }

    /// True for the first that asks.
    pub(crate) fn take(&self) -> bool {
        !self.is_taken.swap(true, Ordering::AcqRel)
    }

    /// The same for a worker. A caller that went away would have given up by now, too.
    pub(crate) fn take_in_time(&self) -> bool {
        self.since.elapsed() <= QUEUED_TIME_MAX && self.take()
    }
}

/// What a transaction came to.
pub(crate) enum Carried {
    /// Everybody's answer, and what the readers must know before.
    Out(News),
    /// Nothing was carried out, or nobody knows; the jobs are back.
    Failed(Failure, Vec<Job>),
    /// More holds are over than one transaction ends: some were ended, the jobs are back.
    Storm(Vec<Job>),
}

/// Where a transaction failed, and why.
struct Stopped {
    failure: Failure,
    error: CallError,
}

/// What the rules made of a batch.
struct Decided {
    decisions: Vec<Result<Done, EngineError>>,
    /// The version of each event afterwards.
    versions: Vec<(i32, u64)>,
    images: Images,
    /// More holds are over than one transaction ends: nothing was decided.
    storm: bool,
}

/// Carries out a batch; asks again while more holds are over than one transaction ends.
pub(crate) async fn carry_out(connection: &Connection, shared: &Shared, mut jobs: Vec<Job>) -> Carried {
    for _ in 0..STORM_ROUNDS_MAX {
        match once(connection, shared, jobs).await {
            Carried::Storm(back) => jobs = back,
            other => return other,
        }
    }
    Carried::Failed(Failure::Unavailable, jobs)
}

/// Ends what is over in one event, for a sweeper with this fence.
pub(crate) async fn end_due(
    connection: &Connection,
    shared: &Shared,
    event: i32,
    fence: Option<i64>,
) -> Result<(), CallError> {
    for _ in 0..STORM_ROUNDS_MAX {
        let mut loaded = load(connection, &Wants::due_of(event)).await?;
        admit_events(connection, &shared.halls, &loaded).await?;
        let Decided { images, storm, .. } = decide_all(&[], &mut loaded, &shared.halls)?;
        finish(connection, &images, fence, CALL_TIME_MAX).await.map_err(|stopped| stopped.error)?;
        images.count(&shared.meters);
        if !storm {
            break;
        }
    }
    Ok(())
}

async fn once(connection: &Connection, shared: &Shared, jobs: Vec<Job>) -> Carried {
    let (halls, meters) = (&shared.halls, &shared.meters);
    let mut wants = Wants::default();
    for job in &jobs {
        wants.add(&job.request.command);
        job.request.key.iter().for_each(|key| wants.add_key(key));
    }
    let decided = async {
        let mut loaded = load(connection, &wants).await?;
        shared.sight.note_up(true);
        loaded.now.iter().for_each(|now| shared.note_time(time(*now)));
        admit_events(connection, halls, &loaded).await?;
        decide_all(&jobs, &mut loaded, halls)
    };
    let Decided { decisions, versions, images, storm } = match decided.await {
        Ok(decided) => decided,
        Err(error) => {
            return failed(Stopped { failure: before_commit(&error), error }, jobs, connection).await;
        }
    };
    if let Err(stopped) = finish(connection, &images, None, time_max(&wants)).await {
        return failed(stopped, jobs, connection).await;
    }
    images.count(meters);
    if storm {
        return Carried::Storm(jobs);
    }
    let answers = jobs.into_iter().zip(decisions).map(|(job, decision)| -> Answer {
        if let Err(EngineError::Refused(refusal)) = &decision {
            meters.refused(refusal);
        }
        (job.reply, decision)
    });
    Carried::Out(News { versions, answers: answers.collect() })
}

async fn load(connection: &Connection, wants: &Wants) -> Result<Loaded, CallError> {
    let arguments: [&(dyn ToSql + Sync); 18] = [
        &wants.events,
        &wants.holds,
        &wants.bookings,
        &wants.blocks,
        &wants.seat_events,
        &wants.seat_nos,
        &wants.seat_holds,
        &wants.seat_hold_nos,
        &wants.late_holds,
        &wants.all_seats,
        &wants.all_seats_of_holds,
        &wants.all_holds,
        &wants.payment_holds,
        &wants.payment_refs,
        &wants.holder_events,
        &wants.holder_names,
        &wants.scopes,
        &DUE_MAX,
    ];
    let client = &connection.client;
    let begin = if wants.is_large() { BEGIN_LARGE } else { "BEGIN" };
    let load = client.query_one(&connection.load, &arguments);
    let count = async {
        match wants.begun_holds.is_empty() {
            true => Ok(Vec::new()),
            false => client.query(&connection.paying, &[&wants.begun_holds, &wants.updated_events]).await,
        }
    };
    // Polled together they go out together, in this order.
    let all = async { tokio::try_join!(client.batch_execute(begin), load, count) };
    let (_, row, counts) = within(time_max(wants), all).await?;
    let mut loaded: Loaded = serde_json::from_str(row.get(0))?;
    loaded.paying = counts.iter().map(|row| (row.get(0), row.get(1))).collect();
    Ok(loaded)
}

fn time_max(wants: &Wants) -> Duration {
    if wants.is_large() { LARGE_TIME_MAX } else { CALL_TIME_MAX }
}

/// Sees to it that this server knows every event that was loaded.
async fn admit_events(connection: &Connection, halls: &Halls, loaded: &Loaded) -> Result<(), CallError> {
    let events = loaded.events.iter().flatten().map(|row| row.no);
    // An answer that is given again is about an event too, even if its hold is forgotten.
    let answered = loaded.answers.iter().flatten().map(|answer| answer.event_no);
    for event in events.chain(answered) {
        halls.get(&connection.client, event).await?;
    }
    Ok(())
}

/// Lets the rules decide. What makes them panic costs those who asked for it an answer, and this server nothing.
fn decide_all(jobs: &[Job], loaded: &mut Loaded, halls: &Halls) -> Result<Decided, CallError> {
    let decide = AssertUnwindSafe(|| {
        let mut parts = parts(halls, loaded)?;
        let storm = parts.iter().any(|part| part.due() >= DUE_MAX as usize);
        parts.iter_mut().for_each(Part::tidy);
        let mut images = Images::default();
        let mut decisions = Vec::new();
        if !storm {
            for job in jobs {
                decisions.push(decide(job, loaded, &mut parts, halls, &mut images));
            }
        }
        let versions = parts.iter().map(|part| (part.number().0.cast_signed(), part.version())).collect();
        parts.into_iter().for_each(|part| part.write(&mut images));
        Ok(Decided { decisions, versions, images, storm })
    });
    catch_unwind(decide).unwrap_or(Err(CallError::Defect))
}

/// The parts of all events that were found and locked.
fn parts(halls: &Halls, loaded: &mut Loaded) -> Result<Vec<Part>, CallError> {
    let events: Vec<i32> = loaded.events.iter().flatten().map(|row| row.no).collect();
    let mut parts = Vec::with_capacity(events.len());
    for event in events {
        let Some(hall) = halls.known(event) else { continue };
        parts.extend(loaded.part(Arc::clone(&hall.venue), halls.epoch())?);
    }
    Ok(parts)
}

/// Writes and commits, with a sweeper's fence if there is one, or ends the transaction when there is nothing to write.
async fn finish(
    connection: &Connection,
    images: &Images,
    fence: Option<i64>,
    time_max: Duration,
) -> Result<(), Stopped> {
    let client = &connection.client;
    if images.is_empty() {
        let ended = within(CALL_TIME_MAX, client.batch_execute("ROLLBACK")).await;
        return ended.map_err(|error| Stopped { failure: before_commit(&error), error });
    }
    let images = match serde_json::to_string(images) {
        Ok(images) => images,
        Err(error) => return Err(Stopped { failure: Failure::Wrong, error: error.into() }),
    };
    let arguments: [&(dyn ToSql + Sync); 1] = [&images];
    let fenced = async {
        match fence {
            Some(fence) => connection.fence(fence).await,
            None => Ok(()),
        }
    };
    let all = async {
        let write = client.execute(&connection.write, &arguments);
        Ok(tokio::join!(write, fenced, client.batch_execute("COMMIT")))
    };
    let (written, fenced, committed) = match within(time_max, all).await {
        Ok(all) => all,
        Err(error) => return Err(Stopped { failure: at_commit(&error), error }),
    };
    // A write that the server refused has undone everything: the commit after it only ended the transaction.
    if let Err(error) = written {
        let refused = error.as_db_error().is_some();
        let error = CallError::from(error);
        let failure = if refused { before_commit(&error) } else { at_commit(&error) };
        return Err(Stopped { failure, error });
    }
    fenced.map_err(|error| Stopped { failure: Failure::Wrong, error })?;
    committed.map_err(|error| {
        let error = CallError::from(error);
        Stopped { failure: at_commit(&error), error }
    })
}

async fn failed(stopped: Stopped, jobs: Vec<Job>, connection: &Connection) -> Carried {
    let Stopped { failure, error } = stopped;
    tracing::warn!(%error, ?failure, commands = jobs.len(), "a transaction of the ledger failed");
    connection.clean_up(failure).await;
    Carried::Failed(failure, jobs)
}

/// The answer to one command, given before or found now.
fn decide(
    job: &Job,
    loaded: &Loaded,
    parts: &mut [Part],
    halls: &Halls,
    images: &mut Images,
) -> Result<Done, EngineError> {
    if let Some(key) = &job.request.key {
        let scope = Uuid::from_u128(key.scope);
        // The same key twice in one batch: the second comes again when the first is answered.
        if images.answers.iter().any(|answer| answer.scope == scope) {
            return Err(EngineError::InFlight);
        }
        if let Some(row) = loaded.answers.iter().flatten().find(|row| row.scope == scope) {
            return done_of(row, key, halls).map(|done| Done { replayed: !job.in_doubt.has_begun(), ..done });
        }
    }
    // Of another event, there or made in this batch. One that is made in this very moment `write_v3` finds.
    if let Command::CreateHold(create) = &job.request.command
        && job.request.key.is_some()
        && parts.iter().any(|part| part.number() != create.event && part.had_hold(create.id))
    {
        return Err(Refusal::Invalid("the hold's id is in use").into());
    }
    let part = part_of(&job.request.command, parts)?;
    if let Command::CreateHold(create) = &job.request.command
        && let Some(outcome) = part.outcome_of_hold(create.id)
    {
        return match job.in_doubt.has_begun() {
            // The attempt whose answer was lost had made it.
            true => Ok(Done { outcome, venue: Arc::clone(&part.venue), at: part.now(), replayed: false }),
            false => Err(Refusal::Invalid("the hold's id is in use").into()),
        };
    }
    let outcome = part.execute(job.request.command.clone())?;
    // Also what changed nothing: asked again later, the same request might.
    if let Some(key) = &job.request.key {
        images.answers.push(answer_row(key, part.number(), part.now(), &outcome));
    }
    Ok(Done { outcome, venue: Arc::clone(&part.venue), at: part.now(), replayed: false })
}

/// The part that a command is about; what the rules say where there is none.
fn part_of<'a>(command: &Command, parts: &'a mut [Part]) -> Result<&'a mut Part, EngineError> {
    let holding = |parts: &[Part], hold: HoldId| parts.iter().position(|part| part.had_hold(hold));
    let place = match command {
        Command::CreateEvent(_) => unreachable!("events are created elsewhere"),
        Command::UpdateEvent(update) => numbered(parts, update.event),
        Command::CreateHold(create) => numbered(parts, create.event),
        Command::CreateBlock(create) => numbered(parts, create.event),
        Command::RemoveBlock(event, _) => numbered(parts, *event),
        Command::AmendHold(amend) => holding(parts, amend.hold),
        Command::ReleaseHold(hold) | Command::RevokeHold(hold, _) | Command::PaymentFailed(hold, _) => {
            holding(parts, *hold)
        }
        Command::BeginPayment(begin) => holding(parts, begin.hold),
        Command::ConfirmHold(confirm) => match holding(parts, confirm.hold) {
            Some(place) => Some(place),
            None => {
                let forgotten = confirm.payment_ref.clone().map(Refusal::HoldForgotten);
                return Err(forgotten.unwrap_or(Refusal::NotFound).into());
            }
        },
        Command::CancelBooking(cancel) => parts.iter().position(|part| part.has_booking(cancel.booking)),
    };
    place.map(|place| &mut parts[place]).ok_or_else(|| Refusal::NotFound.into())
}

fn numbered(parts: &[Part], event: leasehold_core::EventNo) -> Option<usize> {
    parts.iter().position(|part| part.number() == event)
}
