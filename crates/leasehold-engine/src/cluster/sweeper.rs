//! The sweeper: ends holds that are over, forgets what is old, keeps the log within its bound.
//!
//! No answer depends on it: expiry is a matter of the ledger's clock, and whoever takes a seat of a hold that is
//! over ends that hold. Several servers sweep at once without harm; what one has done the next does not find.

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
/// Rows that are deleted with one statement.
const PIECE: i32 = 2_000;

pub(crate) struct Sweeper {
    shared: Arc<Shared>,
    connection: Option<Connection>,
}

impl Sweeper {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, connection: None }
    }

    /// Sweeps until told to stop.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut tidied = Instant::now();
        loop {
            tokio::select! {
                _ = tokio::time::sleep(SWEEP_EVERY) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let tidies = tidied.elapsed() >= TIDY_EVERY;
            if tidies {
                tidied = Instant::now();
            }
            if let Err(error) = self.sweep(tidies).await {
                // Said rarely: a ledger that is away is told of elsewhere.
                if tidies {
                    tracing::warn!(%error, "the ledger could not be tidied");
                }
                self.connection = None;
            }
        }
    }

    async fn sweep(&mut self, tidies: bool) -> Result<(), CallError> {
        if self.connection.is_none() {
            self.connection = Some(self.shared.connect().await?);
        }
        let Some(connection) = &self.connection else { return Ok(()) };
        let sql = include_str!("sql/due.sql");
        let due = within(CALL_TIME_MAX, connection.client.query(sql, &[&EVENTS_PER_SWEEP])).await?;
        for row in due {
            let event: i32 = row.get(0);
            if let Err(error) = desk::end_due(connection, &self.shared, event).await {
                // The others shall not wait for one that cannot be swept.
                tracing::warn!(%error, event, "holds that are over could not be ended");
                within(CALL_TIME_MAX, connection.client.batch_execute("ROLLBACK")).await?;
            }
        }
        if tidies {
            self.tidy(connection).await?;
        }
        Ok(())
    }

    async fn tidy(&self, connection: &Connection) -> Result<(), CallError> {
        let client = &connection.client;
        let ended = [(ENDED_HOLDS_AGE_MAX, ENDED_HOLDS_MAX), (DECLINED_HOLDS_AGE_MAX, DECLINED_HOLDS_MAX)];
        for (kind, (age_max, count_max)) in ended.into_iter().enumerate() {
            let (kind, age_max, count_max) = (kind as i16, age_max.0.cast_signed(), count_max as i64);
            loop {
                let sql = "SELECT leasehold.forget_v1($1, $2, $3, $4)";
                let arguments: [&(dyn ToSql + Sync); 4] = [&kind, &age_max, &count_max, &PIECE];
                let gone = within(CALL_TIME_MAX, client.query_one(sql, &arguments)).await?;
                if gone.get::<_, i32>(0) < PIECE {
                    break;
                }
            }
        }
        let (answers_age_max, answers_max) = (ANSWERS_AGE_MAX.0.cast_signed(), ANSWERS_MAX as i64);
        loop {
            let sql = "SELECT leasehold.trim_v1($1, $2, $3, $4)";
            let arguments: [&(dyn ToSql + Sync); 4] =
                [&LOG_ENTRIES_MAX, &answers_age_max, &answers_max, &PIECE];
            let gone = within(CALL_TIME_MAX, client.query_one(sql, &arguments)).await?;
            if gone.get::<_, i32>(0) < PIECE {
                break;
            }
        }
        let sql = "SELECT count(*) FROM leasehold.holds WHERE kept_until <= (SELECT leasehold.now_ms())";
        let overdue = within(CALL_TIME_MAX, client.query_one(sql, &[])).await?;
        self.shared.meters.holds_overdue.set(overdue.get(0));
        Ok(())
    }
}
