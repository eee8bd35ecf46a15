//! The sweeper: ends holds that are over, forgets what is old, keeps the log within its bound.
//!
//! No answer depends on it: expiry is a matter of the ledger's clock, and whoever takes a seat of a hold that is
//! over ends that hold. One server at a time sweeps, see [`election`](super::election), which saves work; several would do no
//! harm, as what one has done the next does not find.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::limits::{
    DECLINED_HOLDS_AGE_MAX, DECLINED_HOLDS_MAX, ENDED_HOLDS_AGE_MAX, ENDED_HOLDS_MAX,
};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_postgres::types::ToSql;

use super::connection::{CALL_TIME_MAX, CallError, Connection, within};
use super::desk;
use super::election::{Election, Mandate};
use super::shared::Shared;
use crate::embedded::{ANSWERS_AGE_MAX, ANSWERS_MAX};

/// How often it looks for holds that are over.
const SWEEP_EVERY: Duration = Duration::from_millis(250);
/// How often it looks for what is old.
const TIDY_EVERY: Duration = Duration::from_secs(20);
/// Events that are swept at a time.
const EVENTS_PER_SWEEP: i64 = 64;
/// Log entries that stay for each event.
const LOG_ENTRIES_MAX: i64 = 65_536;
/// Holds that are deleted with one statement, while which their events are locked.
const HOLDS_PER_PIECE: i32 = 2_000;
/// Log entries and answers that are: nothing is locked for these, and to find the answers beyond their bound takes long.
const ROWS_PER_PIECE: i32 = 10_000;
/// How long one kind of what is old is deleted in a sweep, but for its first piece. The rest is for the next sweeps, each after
/// the holds that are over by then.
const TIDY_TIME_MAX: Duration = Duration::from_millis(250);

pub(crate) struct Sweeper {
    shared: Arc<Shared>,
    election: Election,
    /// While this server sweeps.
    connection: Option<Connection>,
    tidied: Instant,
    /// Nothing old was left when it last looked.
    is_tidy: bool,
}

impl Sweeper {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let election = Election::new(&shared.database);
        Self { shared, election, connection: None, tidied: Instant::now(), is_tidy: true }
    }

    /// Sweeps, when it is this server's turn, until told to stop.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        // A sweep that is broken off is undone by the ledger.
        tokio::select! {
            () = self.sweep_for_ever() => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
        self.election.resign().await;
    }

    async fn sweep_for_ever(&mut self) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            let Some(mandate) = self.election.mandate().await else {
                // Whoever sweeps now counts them.
                self.shared.meters.holds_overdue.set(0);
                self.connection = None;
                continue;
            };
            let tidies = !self.is_tidy || self.tidied.elapsed() >= TIDY_EVERY;
            if tidies {
                (self.tidied, self.is_tidy) = (Instant::now(), true);
            }
            let Err(error) = self.sweep(mandate, tidies).await else { continue };
            self.connection = None;
            if matches!(error, CallError::Outranked) {
                self.election.was_outranked();
                continue;
            }
            // It may be this server alone that cannot.
            self.election.step_down();
            // Said rarely: a ledger that is away is told of elsewhere.
            if tidies {
                tracing::warn!(%error, "the ledger could not be tidied");
            }
        }
    }

    async fn sweep(&mut self, mandate: Mandate, tidies: bool) -> Result<(), CallError> {
        if self.connection.is_none() {
            let connection = self.shared.connect().await?;
            // The other events shall not wait for one that somebody keeps locked.
            within(CALL_TIME_MAX, connection.client.batch_execute("SET lock_timeout = '500ms'")).await?;
            self.connection = Some(connection);
        }
        let Some(connection) = &self.connection else { return Ok(()) };
        let sql = include_str!("sql/due.sql");
        let due = within(CALL_TIME_MAX, connection.client.query(sql, &[&EVENTS_PER_SWEEP])).await?;
        for row in due {
            let event: i32 = row.get(0);
            match desk::end_due(connection, &self.shared, event, mandate.fence()).await {
                Ok(()) => {}
                Err(CallError::Outranked) => return Err(CallError::Outranked),
                Err(error) => {
                    // The others shall not wait for one that cannot be swept.
                    tracing::warn!(%error, event, "holds that are over could not be ended");
                    within(CALL_TIME_MAX, connection.client.batch_execute("ROLLBACK")).await?;
                }
            }
        }
        if tidies {
            self.is_tidy = self.tidy(connection, mandate).await?;
        }
        Ok(())
    }

    /// Deletes what is old, as far as there is time; whether that was all.
    async fn tidy(&self, connection: &Connection, mandate: Mandate) -> Result<bool, CallError> {
        let mut is_tidy = true;
        let ended = [(ENDED_HOLDS_AGE_MAX, ENDED_HOLDS_MAX), (DECLINED_HOLDS_AGE_MAX, DECLINED_HOLDS_MAX)];
        for (kind, (age_max, count_max)) in ended.into_iter().enumerate() {
            let (kind, age_max, count_max) = (kind as i16, age_max.0.cast_signed(), count_max as i64);
            let forget = "SELECT leasehold.forget_v1($1, $2, $3, $4)";
            let arguments: [&(dyn ToSql + Sync); 4] = [&kind, &age_max, &count_max, &HOLDS_PER_PIECE];
            is_tidy &= delete(connection, forget, &arguments, HOLDS_PER_PIECE, mandate).await?;
        }
        let (answers_age_max, answers_max) = (ANSWERS_AGE_MAX.0.cast_signed(), ANSWERS_MAX as i64);
        let trim = "SELECT leasehold.trim_v1($1, $2, $3, $4)";
        let arguments: [&(dyn ToSql + Sync); 4] =
            [&LOG_ENTRIES_MAX, &answers_age_max, &answers_max, &ROWS_PER_PIECE];
        is_tidy &= delete(connection, trim, &arguments, ROWS_PER_PIECE, mandate).await?;
        let sql = "SELECT count(*) FROM leasehold.holds WHERE kept_until <= (SELECT leasehold.now_ms())";
        let overdue = within(CALL_TIME_MAX, connection.client.query_one(sql, &[])).await?;
        self.shared.meters.holds_overdue.set(overdue.get(0));
        Ok(is_tidy)
    }
}

/// Deletes what a function of the ledger finds to be old, a piece with each transaction; whether that was all.
async fn delete(
    connection: &Connection,
    function: &str,
    arguments: &[&(dyn ToSql + Sync)],
    piece: i32,
    mandate: Mandate,
) -> Result<bool, CallError> {
    let (client, begun) = (&connection.client, Instant::now());
    loop {
        within(CALL_TIME_MAX, client.batch_execute("BEGIN")).await?;
        let gone = within(CALL_TIME_MAX, client.query_one(function, arguments)).await?;
        if let Some(fence) = mandate.fence() {
            connection.fence(fence).await?;
        }
        within(CALL_TIME_MAX, client.batch_execute("COMMIT")).await?;
        if gone.get::<_, i32>(0) < piece {
            return Ok(true);
        }
        if begun.elapsed() >= TIDY_TIME_MAX {
            return Ok(false);
        }
    }
}
