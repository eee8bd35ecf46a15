//! Recomputes everything in a ledger and lists what is wrong.

use leasehold_lock::PostgresDatabase;

use super::connection::{self, CALL_TIME_MAX, within};
use super::{OpenLedgerError, database_at, unusable};

/// What a check of a ledger found.
#[derive(Debug, Clone, Default)]
pub struct LedgerReport {
    /// What is wrong; empty when all is well.
    pub problems: Vec<String>,
    /// Events there are.
    pub events: u64,
    /// Seats they have.
    pub seats: u64,
    /// Holds that keep something.
    pub holds: u64,
    /// Sales that stand.
    pub bookings: u64,
    /// Log entries that are kept.
    pub entries: u64,
}

/// Checks the ledger at this address, at one instant, while servers may work on it.
pub async fn check_ledger(url: &str) -> Result<LedgerReport, OpenLedgerError> {
    check(&database_at(url)?).await
}

async fn check(database: &PostgresDatabase) -> Result<LedgerReport, OpenLedgerError> {
    let (client, _driver) = connection::patient(database).await.map_err(unusable)?;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    within(CALL_TIME_MAX, client.batch_execute(begin)).await.map_err(unusable)?;
    let read = async {
        let problems = client.query(include_str!("sql/check.sql"), &[]).await?;
        let counts = client.query_one(include_str!("sql/counts.sql"), &[]).await?;
        Ok((problems, counts))
    };
    // A large ledger takes its time, and nobody waits for this.
    let (problems, counts) = within(CALL_TIME_MAX * 100, read).await.map_err(unusable)?;
    let count = |place: usize| counts.get::<_, i64>(place).unsigned_abs();
    Ok(LedgerReport {
        problems: problems.iter().map(|row| row.get(0)).collect(),
        events: count(0),
        seats: count(1),
        holds: count(2),
        bookings: count(3),
        entries: count(4),
    })
}
