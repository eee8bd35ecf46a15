//! Fences on Redis that never go back: epochs from PostgreSQL.
//!
//! A counter in Redis alone is given out twice after a failover, because a replica may not have seen the last
//! increments. So each slot's counter belongs to an *epoch* and to one *tenure of one node*: the node's
//! replication id, which changes whenever a server starts or is promoted, and in a cluster its config epoch, which rises
//! when it gets a slot. A script that finds another tenure, or nothing, refuses; the client then takes the next epoch from
//! PostgreSQL and installs it. A fence is `epoch * 2^32 + count`, so all fences of a later epoch are higher. PostgreSQL is
//! asked once per slot and failover, and never for a lock. It also knows which masters were replaced: one that is cut off and
//! goes on gets no epoch above its successor's.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::Client;

use super::link::Link;
use super::script::Lua;
use super::{Question, Tenure, keys};
use crate::error::StoreError;
use crate::postgres::{BadPostgresUrl, Database, failure};

const TIME_MAX: Duration = Duration::from_secs(5);
/// Fences stay below 2^53, up to which every JSON reader is exact.
const EPOCH_MAX: i64 = 1 << 21;

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// An epoch is in force, this one or a later one; or none, because all is different by now. Whoever asks again finds out.
    Perhaps,
    /// The node was replaced by another one, which asked before.
    Superseded,
}

/// Hands out epochs, each only once.
#[derive(Debug, Clone)]
pub struct Epochs {
    database: Database,
    client: Arc<Mutex<Option<Client>>>,
    install: Arc<Lua>,
}

impl Epochs {
    /// Epochs from a PostgreSQL database. It must not lose commits: no asynchronous failover.
    pub fn open(url: &str) -> Result<Self, BadPostgresUrl> {
        let database = Database::at(url)?;
        let text = concat!(include_str!("scripts/tenure.lua"), include_str!("scripts/install_epoch.lua"));
        let install = Lua::new(text);
        Ok(Self { database, client: Arc::default(), install: Arc::new(install) })
    }

    /// Begins a new epoch for a slot on the node that asks.
    pub(super) async fn begin(&self, link: &Link, question: &Question) -> Result<Begun, StoreError> {
        let next = tokio::time::timeout(TIME_MAX, self.next(question)).await;
        let next = match next {
            Ok(next) => next?,
            Err(elapsed) => return Err(StoreError::Unknown(elapsed.into())),
        };
        let Some(epoch) = next else {
            let (slot, server) = (question.slot, &question.tenure.replid);
            tracing::warn!(slot, server, "a Redis server that was replaced was asked for a lock");
            return Ok(Begun::Superseded);
        };
        if epoch >= EPOCH_MAX {
            return Err(StoreError::Refused("all epochs of this slot are used up".into()));
        }
        let slot = question.slot;
        let keys = [keys::guard(slot), keys::counter(slot)];
        let in_cluster = super::flag(link.is_cluster());
        let args = [&epoch.to_string(), &question.tenure.to_string(), &question.text, in_cluster];
        let in_force: u8 = link.run(&self.install, &keys, &args).await?;
        if in_force == 1 {
            tracing::info!(slot, epoch, "a Redis node began a new epoch of fences");
        }
        Ok(Begun::Perhaps)
    }

    /// The next epoch; none for a node that was replaced.
    async fn next(&self, question: &Question) -> Result<Option<i64>, StoreError> {
        let statement = include_str!("sql/next_epoch.sql");
        let Question { tenure: Tenure { replid, config_epoch }, predecessor, .. } = question;
        let config_epoch = i64::try_from(config_epoch.unwrap_or(0)).unwrap_or(i64::MAX);
        let slot = i32::from(question.slot);
        let mut client = self.client.lock().await;
        let mut last_error = None;
        // A connection that broke since the last time is only noticed when it is used.
        for _ in 0..2 {
            let connected = match client.take() {
                Some(connected) if !connected.is_closed() => connected,
                _ => self.connect().await?,
            };
            match connected.query_one(statement, &[&slot, replid, &config_epoch, predecessor]).await {
                Ok(row) => {
                    *client = Some(connected);
                    return Ok(row.get(0));
                }
                // An epoch that was taken and never seen is lost, which harms nobody.
                Err(error) => last_error = Some(error),
            }
        }
        Err(last_error.map_or_else(|| StoreError::Unknown("no answer".into()), failure))
    }

    async fn connect(&self) -> Result<Client, StoreError> {
        let client = self.database.connect().await.map_err(failure)?.client;
        let made = client.batch_execute(include_str!("sql/epochs.sql")).await;
        made.map_err(failure)?;
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    /// Pitfall 29: the settings of a connection are not those of the session, where a pooler is between them.
    #[tokio::test]
    async fn pitfall_29_epoch_is_on_disk_before_it_is_answered_whatever_the_session_says() {
        let postgres = leasehold_testkit::servers::Postgres::start();
        let client = postgres.client().await;
        client.batch_execute(include_str!("sql/epochs.sql")).await.unwrap();
        // Looks when everything else of a transaction is done, just before the commit.
        let look = "CREATE TABLE seen (setting text);
            CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO seen VALUES (current_setting('synchronous_commit'));
                RETURN NULL;
            END $$;
            CREATE CONSTRAINT TRIGGER look AFTER INSERT OR UPDATE ON leasehold_redis_epochs
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION look();
            SET synchronous_commit = off";
        client.batch_execute(look).await.unwrap();
        for epoch in 1..=2_i64 {
            assert_eq!(next(&client, "a", 0, "").await, Some(epoch));
        }
        let seen = client.query("SELECT setting FROM seen", &[]).await.unwrap();
        assert_eq!(seen.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["on", "on"]);
    }
    /// What one statement knows of who was replaced. The scripts' part is in the tests with real failovers.
    #[tokio::test]
    async fn replaced_server_gets_an_epoch_only_when_it_has_the_slot_again() {
        let postgres = leasehold_testkit::servers::Postgres::start();
        let client = postgres.client().await;
        client.batch_execute(include_str!("sql/epochs.sql")).await.unwrap();
        client.batch_execute(include_str!("sql/epochs.sql")).await.unwrap();
        let zeros = "0".repeat(40);
        assert_eq!(next(&client, "a", 0, &zeros).await, Some(1));
        assert_eq!(next(&client, "b", 0, "a").await, Some(2), "b was promoted");
        assert_eq!(next(&client, "a", 0, &zeros).await, None);
        assert_eq!(next(&client, "c", 0, "b").await, Some(3), "and c after it");
        assert_eq!(next(&client, "b", 0, "a").await, None);
        assert_eq!(next(&client, "a", 0, &zeros).await, None, "still");
        assert_eq!(next(&client, "a2", 0, "c").await, Some(4), "a came back as a copy, and was promoted");
        // In a cluster.
        assert_eq!(next(&client, "e", 7, "d").await, Some(5));
        assert_eq!(next(&client, "d", 6, &zeros).await, None);
        assert_eq!(next(&client, "d", 8, &zeros).await, Some(6), "it has the slot again");
        assert_eq!(next(&client, "d", 7, &zeros).await, None, "as it was before that");
        // The oldest of all asks, with a predecessor that nobody has heard of.
        for number in 0..40 {
            let (server, before) = (format!("s{number}"), format!("p{number}"));
            assert!(next(&client, &server, 0, &before).await.is_some());
            assert_eq!(next(&client, &before, 0, &zeros).await, None);
        }
        assert_eq!(next(&client, "p24", 0, "unheard-of").await, None);
        let kept = "SELECT cardinality(replaced) FROM leasehold_redis_epochs";
        assert_eq!(client.query_one(kept, &[]).await.unwrap().get::<_, i32>(0), 16);
    }

    async fn next(client: &tokio_postgres::Client, server: &str, epoch: i64, before: &str) -> Option<i64> {
        let statement = include_str!("sql/next_epoch.sql");
        client.query_one(statement, &[&7_i32, &server, &epoch, &before]).await.unwrap().get(0)
    }
}
