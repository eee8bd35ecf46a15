//! A nightly job that is scheduled on every machine and must run once a night.
//!
//! A lock alone is not enough: a machine whose clock is a little late asks when the first one is done, finds
//! the lock free, and runs the job again. So the holder also writes down which night it was for, under the
//! lock, and whoever comes later finds it done.
//!
//! Run it: `cargo run -p leasehold-lock --features sqlite --example cron`

use std::path::PathBuf;
use std::time::Duration;

use leasehold_lock::{Acquired, BoxError, Locker, Sqlite};
use rusqlite::Connection;
use tokio::task::JoinSet;

const MACHINES: u32 = 4;
/// By how much each machine's clock is later than the one before.
const APART: Duration = Duration::from_millis(400);
/// How long the job takes.
const WORK: Duration = Duration::from_millis(20);

/// Whether a machine looks if the night's run is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Record {
    Ignored,
    Kept,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let runs = night(Record::Ignored).await?;
    println!("with the lock alone:       the job ran {runs} times");
    assert!(runs > 1, "the clocks are further apart than the job is long");

    let runs = night(Record::Kept).await?;
    println!("with the lock and a record: the job ran {runs} time");
    assert_eq!(runs, 1);
    Ok(())
}

/// One night, on all machines. Returns how often the job ran.
async fn night(record: Record) -> Result<u32, BoxError> {
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("jobs.db");
    Connection::open(&database)?.execute_batch(
        "CREATE TABLE runs (job TEXT NOT NULL, night TEXT NOT NULL, fence INTEGER NOT NULL,
                            PRIMARY KEY (job, night));",
    )?;
    let mut machines = JoinSet::new();
    for number in 0..MACHINES {
        let (locks, database) = (folder.path().join("locks.db"), database.clone());
        machines.spawn(async move {
            tokio::time::sleep(APART * number).await;
            run_once(locks, database, record).await
        });
    }
    let mut runs = 0;
    while let Some(machine) = machines.join_next().await {
        runs += u32::from(machine??);
    }
    Ok(runs)
}

/// What the scheduler of one machine starts. True when it ran the job.
async fn run_once(locks: PathBuf, database: PathBuf, record: Record) -> Result<bool, BoxError> {
    let locker = Locker::new(Sqlite::open(locks)?);
    // A scheduler does not wait: if somebody has it, the job is being done.
    let Acquired::Granted(guard) = locker.acquire("cron:report").no_wait().await? else { return Ok(false) };
    let night = "2026-01-31";
    if record == Record::Kept && is_done(&database, night)? {
        guard.release().await?;
        return Ok(false);
    }
    // If the lease is lost, the work is cancelled before another machine can begin.
    guard.run(tokio::time::sleep(WORK)).await?;
    if record == Record::Kept {
        let fence = guard.fence().ok_or("a lock without a fence is not enough here")?;
        Connection::open(&database)?
            .execute("INSERT INTO runs VALUES ('report', ?1, ?2)", (night, fence.0))?;
    }
    guard.release().await?;
    Ok(true)
}

fn is_done(database: &PathBuf, night: &str) -> Result<bool, BoxError> {
    let query = "SELECT EXISTS (SELECT 1 FROM runs WHERE job = 'report' AND night = ?1)";
    Ok(Connection::open(database)?.query_row(query, [night], |row| row.get(0))?)
}
