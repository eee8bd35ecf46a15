//! Brings the ledger's tables and functions up to date; any number of servers may start at once.

use std::time::Duration;

use leasehold_lock::PostgresDatabase;
use tokio_postgres::Client;

use super::connection::{self, CallError, within};

/// The migrations in order. One that was released never changes.
const MIGRATIONS: [(&str, &str); 11] = [
    ("0001_ledger", include_str!("sql/0001_ledger.sql")),
    ("0002_load", include_str!("sql/0002_load.sql")),
    ("0003_write", include_str!("sql/0003_write.sql")),
    ("0004_tidy", include_str!("sql/0004_tidy.sql")),
    ("0005_hold", include_str!("sql/0005_hold.sql")),
    ("0006_confirm", include_str!("sql/0006_confirm.sql")),
    ("0007_sweeper", include_str!("sql/0007_sweeper.sql")),
    ("0008_payments_in_flight", include_str!("sql/0008_payments_in_flight.sql")),
    ("0009_reasons", include_str!("sql/0009_reasons.sql")),
    ("0010_hold_short", include_str!("sql/0010_hold_short.sql")),
    ("0011_hold_of_one_event", include_str!("sql/0011_hold_of_one_event.sql")),
];

/// How many there are.
pub(crate) const KNOWN: u32 = MIGRATIONS.len() as u32;

/// How long a start waits for another one that migrates, and then for its own migrations.
const MIGRATE_TIME_MAX: Duration = Duration::from_secs(120);

/// Whoever migrates has this lock; the number is the word "leasehld" in ASCII.
const LOCK: i64 = 0x6c65_6173_6568_6c64;

/// Why a ledger cannot be brought up to date.
#[derive(Debug)]
pub(crate) enum MigrateError {
    Call(CallError),
    /// It has more migrations than this program knows.
    TooNew(i32),
}

impl<E: Into<CallError>> From<E> for MigrateError {
    fn from(error: E) -> Self {
        Self::Call(error.into())
    }
}

/// Applies what is missing, each migration in a transaction of its own, while no other server does.
pub(crate) async fn migrate(database: &PostgresDatabase) -> Result<(), MigrateError> {
    let (client, _driver) = connection::patient(database).await?;
    match within(MIGRATE_TIME_MAX, bring_up_to_date(&client)).await? {
        Some(found) => Err(MigrateError::TooNew(found)),
        None => Ok(()),
    }
}

/// The number of migrations it has, if they are more than this program knows.
async fn bring_up_to_date(client: &Client) -> Result<Option<i32>, tokio_postgres::Error> {
    // Given back when the connection ends, however that happens.
    client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await?;
    // Asked first: to create what is there already needs a right that a server has no other use for.
    let is_there = "SELECT to_regclass('leasehold.migrations') IS NOT NULL";
    if !client.query_one(is_there, &[]).await?.get::<_, bool>(0) {
        let create = "CREATE SCHEMA IF NOT EXISTS leasehold;
                      CREATE TABLE leasehold.migrations (
                          number integer PRIMARY KEY,
                          name text NOT NULL,
                          applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
                      )";
        client.batch_execute(create).await?;
    }
    let row = client.query_one("SELECT count(*)::integer FROM leasehold.migrations", &[]).await?;
    let applied: i32 = row.get(0);
    let known = MIGRATIONS.len() as i32;
    if applied > known {
        return Ok(Some(applied));
    }
    for number in applied..known {
        apply(client, number).await?;
    }
    Ok(None)
}

async fn apply(client: &Client, number: i32) -> Result<(), tokio_postgres::Error> {
    let (name, sql) = MIGRATIONS[number as usize];
    // Names and numbers of ours, and no one else's: nothing in them needs quoting.
    let record = format!("INSERT INTO leasehold.migrations (number, name) VALUES ({}, '{name}')", number + 1);
    client.batch_execute(&format!("BEGIN;\n{sql};\n{record};\nCOMMIT")).await?;
    tracing::info!(name, "the ledger was migrated");
    Ok(())
}
