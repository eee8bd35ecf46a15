//! Several instances of a program start at once, and each wants to bring the database up to date.
//!
//! One gets the lock and migrates; the others wait for it and find nothing left to do. The version in the
//! database says what is done, and the fence beside it refuses an instance that lost its lock in the middle.
//!
//! Run it: `cargo run -p leasehold-lock --features sqlite --example migration`

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_lock::{BoxError, Fence, Locker, Sqlite};
use rusqlite::{Connection, TransactionBehavior};
use tokio::task::JoinSet;

const INSTANCES: usize = 6;

/// Steps that fail, or do harm, when they are done twice.
const STEPS: [&str; 3] = [
    "CREATE TABLE products (id INTEGER PRIMARY KEY, price INTEGER NOT NULL)",
    "INSERT INTO products (price) VALUES (1000), (2500)",
    "UPDATE products SET price = price * 119 / 100",
];

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let (locks, database) = (folder.path().join("locks.db"), folder.path().join("shop.db"));
    Connection::open(&database)?.execute_batch(
        "CREATE TABLE schema_version (version INTEGER NOT NULL, fence INTEGER NOT NULL);
         INSERT INTO schema_version VALUES (0, 0);",
    )?;

    let mut instances = JoinSet::new();
    for _ in 0..INSTANCES {
        instances.spawn(start(locks.clone(), database.clone()));
    }
    let mut done = Vec::new();
    while let Some(instance) = instances.join_next().await {
        done.push(instance??);
    }
    println!("steps done by each of {INSTANCES} instances: {done:?}");
    assert_eq!(done.iter().sum::<usize>(), STEPS.len(), "every step was done once");
    assert_eq!(done.iter().filter(|steps| **steps > 0).count(), 1, "one instance did all of them");

    let (first, count): (i64, i64) =
        Connection::open(&database)?.query_row("SELECT min(price), count(*) FROM products", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    assert_eq!((first, count), (1190, 2));

    // An instance that lost its lock long ago, and does not know it, changes nothing.
    let late =
        Connection::open(&database).map_err(BoxError::from).and_then(|mut late| step(&mut late, Fence(0)));
    println!(
        "an instance with an old fence: {}",
        late.as_ref().err().map_or("accepted".to_owned(), ToString::to_string)
    );
    assert!(late.is_err());
    Ok(())
}

/// What an instance does at its start. Returns how many steps it did itself.
async fn start(locks: PathBuf, database: PathBuf) -> Result<usize, BoxError> {
    let locker = Locker::new(Sqlite::open(locks)?);
    let asked = locker.acquire("migration:shop").wait(Duration::from_secs(60)).await?;
    let guard = asked.granted().ok_or("another instance has been migrating for a minute")?;
    let fence = guard.fence().ok_or("a lock without a fence is not enough here")?;
    let migrated = guard.run(migrate(database, fence)).await?;
    guard.release().await?;
    migrated
}

async fn migrate(database: PathBuf, fence: Fence) -> Result<usize, BoxError> {
    // Migrations block. On a thread of their own they do not hold up the renewal of the lease.
    tokio::task::spawn_blocking(move || all_steps(&database, fence)).await?
}

fn all_steps(database: &Path, fence: Fence) -> Result<usize, BoxError> {
    let mut connection = Connection::open(database)?;
    let mut done = 0;
    while step(&mut connection, fence)? {
        done += 1;
    }
    Ok(done)
}

/// Does the next step, if one is left. One transaction: the fence, the version and the step.
fn step(connection: &mut Connection, fence: Fence) -> Result<bool, BoxError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let accepted =
        transaction.execute("UPDATE schema_version SET fence = ?1 WHERE fence <= ?1", [fence.0])?;
    if accepted == 0 {
        return Err("refused: a later holder of the lock was here".into());
    }
    let version: usize = transaction.query_row("SELECT version FROM schema_version", [], |row| row.get(0))?;
    let Some(statement) = STEPS.get(version) else { return Ok(false) };
    transaction.execute(statement, [])?;
    transaction.execute("UPDATE schema_version SET version = version + 1", [])?;
    transaction.commit()?;
    Ok(true)
}
