//! Inside the engine: durable holds that are held and expire in a cycle, beside SQLite's plain appends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use hdrhistogram::Histogram;
use leasehold_core::random::Random;
use leasehold_core::{
    Changes, Command, CreateEvent, CreateHold, Epoch, EventNo, HoldId, ItemRequest, Layout, Millis, Name,
    Policy, Refusal, SeatNo, State, Text, Timestamp,
};
use leasehold_engine::{
    EmbeddedEngine, EmbeddedOptions, Engine, EngineError, Outcome, Request, Venue, check_file, new_hold_id,
};

use crate::Bench;
use crate::sqlite;
use crate::table::{Aim, Table};

const CALLERS: usize = 1_024;
const SEATS: u32 = 1_000_000;
/// Rounds of a second or less at each size.
const FLAT_ROUNDS: usize = 6;
/// Tables that do not keep up are behind by the whole run at its end, which is longer.
const BEHIND_SECONDS_MAX: f64 = 15.0;

pub(crate) async fn measure(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let seconds = if bench.quick { 8 } else { 30 };
    let folder = tempfile::tempdir_in(&bench.folder)?;
    let sustained = cycle(&folder.path().join("cycle.db"), Duration::from_secs(seconds)).await?;
    let batch = sustained.commands_per_commit.round().max(1.0) as usize;
    let appends =
        sqlite::appends_per_second(&folder.path().join("rows.db"), batch, Duration::from_secs(seconds / 3))?;
    table.ratio(
        &format!("durable holds in the engine, 1,024 callers, {seconds} s, held and expiring"),
        format!("{:.0}/s", sustained.holds_per_second),
        format!("SQLite appends, batch {batch}: {appends:.0}/s"),
        sustained.holds_per_second / appends,
        Aim::AtLeast(0.35),
    );
    table.figure(
        "longest pause in that run",
        sustained.pause_max.as_secs_f64() * 1e3,
        "ms",
        Aim::AtMost(50.0),
    );
    table.figure(
        "the tables behind the journal in that run, at most, in seconds of it",
        sustained.behind_max as f64 / sustained.entries_per_second,
        "s",
        Aim::AtMost(BEHIND_SECONDS_MAX),
    );

    let commit = sqlite::bare_commit(&folder.path().join("commit.db"), 2_000)?;
    let single = Stage::open(&folder.path().join("single.db"), 1_000).await?;
    let times = single.latency(1, 2_000).await?;
    single.close().await?;
    let again = sqlite::bare_commit(&folder.path().join("commit-2.db"), 2_000)?;
    let commit = (commit + again) / 2;
    let median = Duration::from_micros(times.value_at_quantile(0.5));
    table.ratio(
        "one caller: a hold, in bare commits",
        format!("{median:.0?}"),
        format!("SQLite commit {commit:.0?}"),
        median.as_secs_f64() / commit.as_secs_f64(),
        Aim::AtMost(1.5),
    );
    let (three_quarters, every_second) = (taken_at_random(37_500), (0..50_000).step_by(2).collect());
    for (what, taken) in [("three quarters taken", three_quarters), ("every second taken", every_second)] {
        let work = format!("best two together of 50,000 seats, {what}, p99");
        table.figure(&work, best_available(taken)?, "us", Aim::AtMost(100.0));
    }
    let (small, large) = flat_cost(folder.path()).await?;
    table.ratio(
        "flat cost: p99 of a hold at 1,000,000 seats beside 1,000",
        format!("{large} us"),
        format!("{small} us"),
        large as f64 / small as f64,
        Aim::AtMost(1.5),
    );
    Ok(())
}

/// The p99 of a hold in microseconds, at 1,000 seats and at 1,000,000. Measured in turns: within a second a single
/// checkpoint, or somebody else's work on the disk, decides either.
async fn flat_cost(folder: &Path) -> anyhow::Result<(u64, u64)> {
    let stages = [
        Stage::open(&folder.join("small.db"), 1_000).await?,
        Stage::open(&folder.join("large.db"), SEATS).await?,
    ];
    let mut times = [Histogram::<u64>::new(3)?, Histogram::new(3)?];
    for _ in 0..FLAT_ROUNDS {
        for (stage, times) in stages.iter().zip(&mut times) {
            times.add(stage.latency(64, 40_000).await?)?;
        }
    }
    for stage in stages {
        stage.close().await?;
    }
    Ok((times[0].value_at_quantile(0.99), times[1].value_at_quantile(0.99)))
}

/// So many of 50,000 seats.
fn taken_at_random(count: usize) -> Vec<u32> {
    let mut random = Random::new(7);
    let mut seats: Vec<u32> = (0..50_000).collect();
    for place in 0..count {
        let other = place + random.below((seats.len() - place) as u64) as usize;
        seats.swap(place, other);
    }
    seats.truncate(count);
    seats
}

/// Microseconds to choose and hold two seats together in a venue of 50,000 of which these are taken. With every second one
/// taken no row has two together, so all of them are looked at.
fn best_available(taken: Vec<u32>) -> anyhow::Result<f64> {
    let mut state = State::new(Epoch::FIRST);
    let mut changes = Changes::default();
    let now = Timestamp::from_millis(1_700_000_000_000);
    let create = CreateEvent {
        id: Name::parse("bench")?,
        name: Text::parse("Bench")?,
        layout: Arc::new(Layout::grid(&[(Name::parse("A")?, 1_000, 50)])?),
        pools: vec![],
        policy: Policy::default(),
    };
    state.apply(Command::CreateEvent(create), now, &mut changes)?;
    for seat in taken {
        state.apply(hold_of(ItemRequest::Seat(SeatNo(seat)), new_hold_id()), now, &mut changes)?;
    }
    let mut random = Random::new(7);
    let best = ItemRequest::Best { count: 2, section: None };
    let mut times = Histogram::<u64>::new(3)?;
    for _ in 0..2_000 {
        changes.clear();
        let id = new_hold_id();
        let begun = Instant::now();
        state.apply(hold_of(best, id), now, &mut changes)?;
        times.record(begun.elapsed().as_nanos() as u64)?;
        if random.once_in(2) {
            state.apply(Command::ReleaseHold(id), now, &mut changes)?;
        }
    }
    Ok(times.value_at_quantile(0.99) as f64 / 1_000.0)
}

fn hold_of(item: ItemRequest, id: HoldId) -> Command {
    let event = EventNo(0);
    Command::CreateHold(CreateHold { event, id, items: vec![item], holder: None, ttl: None })
}

struct Sustained {
    holds_per_second: f64,
    entries_per_second: f64,
    pause_max: Duration,
    /// Entries of the journal that the tables did not show yet.
    behind_max: u64,
    commands_per_commit: f64,
}

/// Callers that hold one seat after the other for a second; every seat is held again and again.
async fn cycle(path: &Path, duration: Duration) -> anyhow::Result<Sustained> {
    let (engine, venue) = open(path, SEATS).await?;
    // The tables show a million new seats first: that is not what is measured here.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let granted = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = Vec::with_capacity(CALLERS);
    for caller in 0..CALLERS {
        let (engine, venue) = (Arc::clone(&engine), Arc::clone(&venue));
        let (granted, stop) = (Arc::clone(&granted), Arc::clone(&stop));
        callers.push(tokio::spawn(async move {
            let share = SEATS / CALLERS as u32;
            let mut turn = 0;
            while !stop.load(Ordering::Relaxed) {
                let seat = caller as u32 * share + turn % share;
                turn += 1;
                match engine.execute(hold(&venue, seat, 1_000)).await {
                    Ok(_) => drop(granted.fetch_add(1, Ordering::Relaxed)),
                    // Came around before the seat's second was over.
                    Err(EngineError::Refused(Refusal::SeatsTaken(_))) => tokio::task::yield_now().await,
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }));
    }
    let begun = Instant::now();
    let watching = tokio::task::spawn_blocking({
        let (granted, engine) = (Arc::clone(&granted), Arc::clone(&engine));
        move || watch(&granted, &engine, duration)
    });
    let (pause_max, behind_max) = watching.await?;
    let (count, elapsed) = (granted.load(Ordering::Relaxed), begun.elapsed());
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await??;
    }
    let commands_per_commit = commands_per_commit(engine.as_ref())?;
    engine.close().await;
    let report = check_file(path)?;
    ensure!(report.problems.is_empty(), "the oversell check: {:?}", report.problems);
    let holds_per_second = count as f64 / elapsed.as_secs_f64();
    // Every hold is two entries: it is made, and it is over.
    let entries_per_second = 2.0 * holds_per_second;
    Ok(Sustained { holds_per_second, entries_per_second, pause_max, behind_max, commands_per_commit })
}

/// The longest time in which nothing was granted, and the furthest that the tables were behind; looked at twice a
/// millisecond.
fn watch(granted: &AtomicU64, engine: &EmbeddedEngine, duration: Duration) -> (Duration, u64) {
    let begun = Instant::now();
    let (mut last, mut since, mut longest) = (0, Instant::now(), Duration::ZERO);
    let mut behind_max = 0;
    while begun.elapsed() < duration {
        std::thread::sleep(Duration::from_micros(500));
        let now = granted.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        longest = longest.max(since.elapsed());
        behind_max = behind_max.max(engine.meters().tables_behind.get());
    }
    (longest, behind_max.unsigned_abs())
}

/// An engine with one event, on its own file.
struct Stage {
    engine: Arc<EmbeddedEngine>,
    venue: Arc<Venue>,
    path: PathBuf,
    seats: u32,
}

impl Stage {
    async fn open(path: &Path, seats: u32) -> anyhow::Result<Self> {
        let (engine, venue) = open(path, seats).await?;
        // The tables show the new seats first: that is not what is measured here.
        tokio::time::sleep(Duration::from_secs(6)).await;
        Ok(Self { engine, venue, path: path.to_owned(), seats })
    }

    /// Microseconds from asking for a hold to having it durably; every hold is given back.
    async fn latency(&self, callers: usize, holds: usize) -> anyhow::Result<Histogram<u64>> {
        let mut tasks = Vec::new();
        let share = self.seats / callers as u32;
        for caller in 0..callers {
            let (engine, venue) = (Arc::clone(&self.engine), Arc::clone(&self.venue));
            tasks.push(tokio::spawn(async move {
                let mut times = Histogram::<u64>::new(3)?;
                for turn in 0..holds / callers {
                    // A stride that is prime to the number of seats visits all of them in no order.
                    let place = (caller as u64 + (turn * callers) as u64 * 7_919) % u64::from(share);
                    let seat = caller as u32 * share + place as u32;
                    let begun = Instant::now();
                    let done = engine.execute(hold(&venue, seat, 300_000)).await?;
                    times.record(begun.elapsed().as_micros() as u64)?;
                    let Outcome::Hold(hold) = done.outcome else { bail!("a hold was asked for") };
                    let secret = engine.secret_of(hold.id);
                    let release = Request::new(Command::ReleaseHold(hold.id)).with_secret(Some(secret));
                    engine.execute(release).await?;
                }
                Ok::<_, anyhow::Error>(times)
            }));
        }
        let mut all = Histogram::<u64>::new(3)?;
        for task in tasks {
            all.add(task.await??)?;
        }
        Ok(all)
    }

    async fn close(self) -> anyhow::Result<()> {
        self.engine.close().await;
        let report = check_file(&self.path)?;
        ensure!(report.problems.is_empty(), "the oversell check: {:?}", report.problems);
        Ok(())
    }
}

pub(crate) async fn open(path: &Path, seats: u32) -> anyhow::Result<(Arc<EmbeddedEngine>, Arc<Venue>)> {
    let engine = Arc::new(EmbeddedEngine::open(EmbeddedOptions::new(path))?);
    let layout = Layout::grid(&[(Name::parse("A")?, seats.div_ceil(1_000), 1_000)])?;
    let create = CreateEvent {
        id: Name::parse("bench")?,
        name: Text::parse("Bench")?,
        layout: Arc::new(layout),
        pools: vec![],
        policy: Policy { hold_total_max: Millis(24 * 60 * 60 * 1_000), ..Policy::default() },
    };
    let venue = engine.execute(Request::new(Command::CreateEvent(create))).await?.venue;
    Ok((engine, venue))
}

pub(crate) fn hold(venue: &Venue, seat: u32, ttl_ms: u64) -> Request {
    Request::new(Command::CreateHold(CreateHold {
        event: venue.number,
        id: new_hold_id(),
        items: vec![ItemRequest::Seat(SeatNo(seat))],
        holder: None,
        ttl: Some(Millis(ttl_ms)),
    }))
}

/// How many commands shared a commit, on average: the batch the peer is measured with.
fn commands_per_commit(engine: &EmbeddedEngine) -> anyhow::Result<f64> {
    let mut registry = prometheus_client::registry::Registry::default();
    engine.meters().register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    let figure = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<f64>().ok()).unwrap_or(f64::NAN)
    };
    Ok(figure("leasehold_commit_commands_sum ") / figure("leasehold_commit_commands_count "))
}
