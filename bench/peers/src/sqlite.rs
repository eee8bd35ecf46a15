//! The peer inside the engine: SQLite with the same settings, appending one row a hold.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use rusqlite::Connection;

/// A row as long as the journal's record of a hold.
const ROW: [u8; 96] = [7; 96];

/// Appends rows in commits of `batch` for `duration`; rows a second.
pub(crate) fn appends_per_second(path: &Path, batch: usize, duration: Duration) -> anyhow::Result<f64> {
    let mut connection = open(path)?;
    let begun = Instant::now();
    let mut rows = 0_u64;
    while begun.elapsed() < duration {
        let transaction = connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached("INSERT INTO row (image) VALUES (?1)")?;
            for _ in 0..batch {
                insert.execute([&ROW[..]])?;
            }
        }
        transaction.commit()?;
        rows += batch as u64;
    }
    Ok(rows as f64 / begun.elapsed().as_secs_f64())
}

/// Median time of a commit of one row.
pub(crate) fn bare_commit(path: &Path, commits: usize) -> anyhow::Result<Duration> {
    let mut connection = open(path)?;
    let mut times = Vec::with_capacity(commits);
    for _ in 0..commits {
        let begun = Instant::now();
        let transaction = connection.transaction()?;
        transaction.prepare_cached("INSERT INTO row (image) VALUES (?1)")?.execute([&ROW[..]])?;
        transaction.commit()?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

fn open(path: &Path) -> anyhow::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE row (id INTEGER PRIMARY KEY, image BLOB NOT NULL)",
    )?;
    let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    ensure!(synchronous == 2, "commits must be durable");
    Ok(connection)
}
