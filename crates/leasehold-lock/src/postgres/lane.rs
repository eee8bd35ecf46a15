//! A connection that many share, made when it is needed and again when it broke.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::database::{Database, failure};
use crate::current::{Current, End};
use crate::error::StoreError;

/// How long a call may take, with the connection if there is none. Longer than the database's own limit.
const TIME_MAX: Duration = Duration::from_secs(8);

/// A call that is given up here is over there soon: nothing takes effect much later.
const SESSION: &str = "
SET synchronous_commit = on;
SET default_transaction_isolation = 'read committed';
SET statement_timeout = '5s';
SET idle_in_transaction_session_timeout = '5s';
SET client_min_messages = warning";

/// Whether a function is there. By the tables: `to_regprocedure` may answer from what this session remembers, and miss
/// what another made while it waited for [`MAKE`].
const IS_THERE: &str = "SELECT EXISTS (
    SELECT FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
    WHERE nspname = 'leasehold_locks' AND proname = $1)";
/// The last function of `schema.sql`, and the one that `acquire.sql` is about.
const SCHEMA: &str = "release_v1";
const ACQUIRE: &str = "acquire_v2";
/// What older versions made in its place.
const ACQUIRE_BEFORE: &str = "acquire_v1";
/// Whoever makes what is missing has this lock; the number is the word "leaselck" in ASCII.
const MAKE: &str = "BEGIN; SELECT pg_advisory_xact_lock(7810756276994728811)";

/// See this module's documentation.
#[derive(Debug)]
pub(super) struct Lane {
    database: Database,
    link: Current<Arc<Link>>,
    /// How often it was made; one at a time makes it.
    connecting: Mutex<u64>,
}

/// A connection with its statements.
pub(super) struct Link {
    client: Client,
    pub(super) acquire: Statement,
    pub(super) renew: Statement,
    pub(super) release: Statement,
    pub(super) inspect: Statement,
    pub(super) place: Statement,
}

impl Lane {
    /// A connection that leaves questions open for `silence_max` is left, also when nobody waits so long for an answer.
    pub(super) fn to(database: Database, silence_max: Duration) -> Self {
        Self { database, link: Current::none(silence_max), connecting: Mutex::default() }
    }

    /// Asks one thing. What was asked before on the same connection is done before.
    pub(super) async fn ask(
        &self,
        statement: impl Fn(&Link) -> &Statement,
        arguments: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        let mut asked_over = None;
        let asking = async {
            let (number, link) = self.link().await?;
            asked_over = Some(number);
            let asked = self.link.asks(number, None);
            let answer = link.client.query(statement(&link), arguments).await;
            asked.ends(End::Answered);
            answer.map_err(failure)
        };
        match tokio::time::timeout(TIME_MAX, asking).await {
            Ok(answer) => answer,
            // Whatever it hangs on, the next one does not wait behind it. Most of the time may have been the connecting.
            Err(elapsed) => {
                asked_over.inspect(|number| self.link.leave(*number));
                Err(StoreError::Unknown(elapsed.into()))
            }
        }
    }

    async fn link(&self) -> Result<(u64, Arc<Link>), StoreError> {
        let open = || self.link.get().filter(|(_, link)| !link.client.is_closed());
        if let Some(open) = open() {
            return Ok(open);
        }
        let mut number = self.connecting.lock().await;
        if let Some(open) = open() {
            return Ok(open);
        }
        let link = Arc::new(Link::connect(&self.database).await?);
        *number += 1;
        self.link.set(*number, Arc::clone(&link));
        Ok((*number, link))
    }
}

impl Link {
    async fn connect(database: &Database) -> Result<Self, StoreError> {
        let client = database.connect().await.map_err(failure)?.client;
        Self::prepare(client).await.map_err(failure)
    }

    async fn prepare(client: Client) -> Result<Self, tokio_postgres::Error> {
        client.batch_execute(SESSION).await?;
        let acquire = match make_what_is_missing(&client).await {
            Ok(()) => ACQUIRE,
            Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                client.batch_execute("ROLLBACK").await?;
                if !is_there(&client, ACQUIRE_BEFORE).await? {
                    return Err(error);
                }
                tracing::warn!(
                    "this user may not renew the functions of leasehold_locks, and uses the older ones"
                );
                ACQUIRE_BEFORE
            }
            Err(error) => return Err(error),
        };
        let acquire = format!("SELECT * FROM leasehold_locks.{acquire}($1, $2, $3, $4, $5, $6)");
        let renew = "SELECT leasehold_locks.renew_v1($1, $2, $3, $4)";
        let release = "SELECT leasehold_locks.release_v1($1, $2, $3)";
        let place = "SELECT place FROM leasehold_locks.waiting WHERE name = $1 AND owner = $2";
        Ok(Self {
            acquire: client.prepare(&acquire).await?,
            renew: client.prepare(renew).await?,
            release: client.prepare(release).await?,
            inspect: client.prepare(include_str!("sql/inspect.sql")).await?,
            place: client.prepare(place).await?,
            client,
        })
    }
}

async fn make_what_is_missing(client: &Client) -> Result<(), tokio_postgres::Error> {
    if is_there(client, SCHEMA).await? && is_there(client, ACQUIRE).await? {
        return Ok(());
    }
    client.batch_execute(MAKE).await?;
    // Somebody else may have made it meanwhile, and use it: to make it again would get in the way.
    if !is_there(client, SCHEMA).await? {
        client.batch_execute(include_str!("sql/schema.sql")).await?;
    }
    if !is_there(client, ACQUIRE).await? {
        client.batch_execute(include_str!("sql/acquire.sql")).await?;
    }
    client.batch_execute("COMMIT").await
}

async fn is_there(client: &Client, function: &str) -> Result<bool, tokio_postgres::Error> {
    Ok(client.query_one(IS_THERE, &[&function]).await?.get(0))
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_testkit::servers::{Direction, FaultProxy, Postgres};

    /// Of the time that a call may take, the connecting took so much that the silence after it is not a long one.
    #[tokio::test]
    async fn connection_that_hung_for_the_rest_of_a_calls_time_is_left() {
        let silence_max = Duration::from_secs(5);
        let server = Postgres::start();
        let proxy = FaultProxy::start(server.address()).await;
        let url = format!("postgres://postgres@{}/postgres", proxy.address());
        let database = Database::at(&url).unwrap();
        let ask = async |lane: &Lane| lane.ask(|link| &link.place, &[&"job", &"nobody"]).await;
        // Makes what is missing in the database.
        ask(&Lane::to(database.clone(), silence_max)).await.unwrap();
        let lane = Lane::to(database, silence_max);
        proxy.delay(Direction::Answers, Duration::from_millis(400));
        let began = tokio::time::Instant::now();
        let connected = async {
            while lane.link.get().is_none() && began.elapsed() < TIME_MAX {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            proxy.swallow(Direction::Answers);
            began.elapsed()
        };
        let (answer, connecting) = tokio::join!(ask(&lane), connected);
        assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
        assert!(connecting + silence_max > TIME_MAX, "connected too soon, after {connecting:?}");
        assert!(lane.link.get().is_none(), "the next one would wait behind it");
    }
}
