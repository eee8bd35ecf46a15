//! A connection to the ledger: its settings, its statements, and what its failures mean.

use std::time::Duration;

use leasehold_core::Epoch;
use leasehold_lock::PostgresDatabase;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Statement};

use crate::bytes::Damaged;

/// How long a connection may take to be made.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// How long a call may take before the connection is given up. Longer than the server's own limit.
pub(crate) const CALL_TIME_MAX: Duration = Duration::from_secs(8);
/// The same for a call about everything that an event has.
pub(crate) const LARGE_TIME_MAX: Duration = Duration::from_secs(62);

/// What the ledger says to a sweeper whose fence is too low.
const OUTRANKED: &str = "LH001";

/// The database's limits on us: a server that stands still keeps what it has locked for a second and no longer.
///
/// Plans are kept, and those that were made for empty tables would be slow later: ours go by the keys from the start.
const SESSION: &str = "
SET synchronous_commit = on;
SET default_transaction_isolation = 'read committed';
SET statement_timeout = '6s';
SET lock_timeout = '3s';
SET idle_in_transaction_session_timeout = '1s';
SET jit = off;
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET client_min_messages = warning";

/// The same for reads, so that what nobody waits for any more ends by itself.
const READS: &str = "
SET statement_timeout = '6s';
SET lock_timeout = '4s';
SET idle_in_transaction_session_timeout = '1s';
SET client_min_messages = warning";

/// A connection, with the task that drives it. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) load: Statement,
    pub(crate) paying: Statement,
    pub(crate) write: Statement,
    pub(crate) hold: Statement,
    pub(crate) confirm: Statement,
    /// The ledger's epoch when this connection was made.
    pub(crate) epoch: Epoch,
    _driver: Driver,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("the ledger did not answer in time")]
    Timeout,
    #[error("the ledger refused: {}", said(.0))]
    Database(#[from] tokio_postgres::Error),
    #[error("the ledger holds what was never written: {0}")]
    Damaged(#[from] Damaged),
    #[error("the ledger's answer cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("the ledger was restored since this server started: start the server again")]
    OtherEpoch,
    #[error("the rules met what they were not made for")]
    Defect,
    #[error("another server has swept the ledger since")]
    Outranked,
}

/// The server's own words; or what else happened, with its reasons.
fn said(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| with_reasons(error), |said| said.message().to_owned())
}

/// An error's text, which leaves its reasons to its sources, and theirs.
pub(crate) fn with_reasons(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(reason) = source {
        text = format!("{text}: {reason}");
        source = reason.source();
    }
    text
}

/// What a failed call means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It had no effect, and may succeed at once: a deadlock.
    Again,
    /// It had no effect: somebody keeps an event locked.
    Locked,
    /// It had no effect: the ledger cannot be reached, or is not able to work.
    Unavailable,
    /// The connection was lost after the commit was sent: it may have taken effect.
    InDoubt,
    /// It had no effect and never will: something in it is wrong.
    Wrong,
}

impl Connection {
    /// Connects, and prepares what every call uses.
    pub(crate) async fn open(database: &PostgresDatabase) -> Result<Self, CallError> {
        let connecting = async {
            let (client, driver) = connect(database).await?;
            // All at once: a ledger that is far away is asked again as soon as a near one.
            let ((), epoch, load, paying, write, hold, confirm) = tokio::try_join!(
                client.batch_execute(SESSION),
                epoch_of(&client),
                client.prepare(include_str!("sql/load.sql")),
                client.prepare(include_str!("sql/paying.sql")),
                client.prepare("SELECT leasehold.write_v3($1::text::json)"),
                client.prepare(include_str!("sql/hold.sql")),
                client.prepare(include_str!("sql/confirm.sql")),
            )?;
            Ok(Self { client, load, paying, write, hold, confirm, epoch, _driver: driver })
        };
        within(CONNECT_TIME_MAX, connecting).await
    }

    /// Ends a transaction that failed. A connection that is of no more use is let go of instead, which ends it too: a server that
    /// does not answer is not asked once more for as long as that may take.
    pub(crate) async fn clean_up(&self, failure: Failure) {
        if !matches!(failure, Failure::Unavailable | Failure::InDoubt) {
            let _ = within(CALL_TIME_MAX, self.client.batch_execute("ROLLBACK")).await;
        }
    }

    /// Shows a sweeper's fence before the commit; see `0007_sweeper.sql`. Sent when it is first polled.
    pub(crate) async fn fence(&self, fence: i64) -> Result<(), CallError> {
        let sql = format!("SELECT leasehold.fence_v1({fence})");
        match within(CALL_TIME_MAX, self.client.batch_execute(&sql)).await {
            Err(CallError::Database(error)) if error.code().is_some_and(|code| code.code() == OUTRANKED) => {
                Err(CallError::Outranked)
            }
            other => other,
        }
    }
}

/// The epoch that a ledger is in.
pub(crate) async fn epoch_of(client: &Client) -> Result<Epoch, tokio_postgres::Error> {
    let row = client.query_one("SELECT epoch FROM leasehold.ledger", &[]).await?;
    Ok(Epoch(row.get::<_, i32>(0).cast_unsigned()))
}

/// A connection for reads, without the prepared statements.
pub(crate) async fn plain(database: &PostgresDatabase) -> Result<(Client, Driver), CallError> {
    with_session(database, READS).await
}

/// A connection for what takes its time: migrations, checks.
pub(crate) async fn patient(database: &PostgresDatabase) -> Result<(Client, Driver), CallError> {
    with_session(database, "SET client_min_messages = warning").await
}

/// The same for one long transaction of many calls. Should its server be gone in the middle, the database ends it.
pub(crate) async fn laborious(database: &PostgresDatabase) -> Result<(Client, Driver), CallError> {
    let session = "SET synchronous_commit = on;
                   SET statement_timeout = '60s';
                   SET lock_timeout = '50s';
                   SET idle_in_transaction_session_timeout = '30s';
                   SET client_min_messages = warning";
    with_session(database, session).await
}

async fn with_session(database: &PostgresDatabase, session: &str) -> Result<(Client, Driver), CallError> {
    let connecting = async {
        let (client, driver) = connect(database).await?;
        client.batch_execute(session).await?;
        Ok((client, driver))
    };
    within(CONNECT_TIME_MAX, connecting).await
}

/// The task that drives a connection; it ends with this.
#[derive(Debug)]
pub(crate) struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn connect(database: &PostgresDatabase) -> Result<(Client, Driver), tokio_postgres::Error> {
    let connected = database.connect().await?;
    Ok((connected.client, Driver(connected.driver)))
}

/// The result of a call, if it comes in time.
pub(crate) async fn within<T>(
    time_max: Duration,
    call: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(time_max, call).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(CallError::Timeout),
    }
}

/// What an error before the commit means: nothing happened.
pub(crate) fn before_commit(error: &CallError) -> Failure {
    let code = match error {
        CallError::Timeout | CallError::OtherEpoch => return Failure::Unavailable,
        CallError::Damaged(_) | CallError::Unreadable(_) | CallError::Defect | CallError::Outranked => {
            return Failure::Wrong;
        }
        CallError::Database(error) => match error.code() {
            Some(code) => code,
            None => return Failure::Unavailable,
        },
    };
    match *code {
        // A statement runs out of time when it waits twice: first behind others that wait for the lock, then for the lock
        // itself. What is cancelled did not happen, also at a commit.
        SqlState::LOCK_NOT_AVAILABLE | SqlState::QUERY_CANCELED => Failure::Locked,
        SqlState::T_R_DEADLOCK_DETECTED
        | SqlState::T_R_SERIALIZATION_FAILURE
        | SqlState::UNIQUE_VIOLATION => Failure::Again,
        _ if cannot_work(code) => Failure::Unavailable,
        _ => Failure::Wrong,
    }
}

/// What an error after the commit was sent means. The server said no: nothing happened. It said nothing: who knows.
pub(crate) fn at_commit(error: &CallError) -> Failure {
    match before_commit(error) {
        // Said to everybody when the server stops, also to those whose commit is on the disk.
        Failure::Unavailable => Failure::InDoubt,
        other => other,
    }
}

/// The server stops, starts, is full, is read-only, or has waited too long for us.
fn cannot_work(code: &SqlState) -> bool {
    let class = &code.code()[..2];
    class == "57" || class == "53" || class == "08" || class == "58" || class == "25"
}
