//! What a ledger runs on: the settings, rights and standbys of its database, for whoever judges a deployment.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio_postgres::Client;

use super::connection::{self, CALL_TIME_MAX, within};
use super::{OpenLedgerError, database_at, migrate, unusable};

/// Connections that a server has to its ledger at most.
pub const LEDGER_CONNECTIONS_MAX: u32 = 8;

/// How often the ledger is asked for its time.
const QUESTIONS: usize = 8;

/// What was found, without a judgement.
#[derive(Debug, Clone)]
pub struct LedgerFacts {
    /// The version of PostgreSQL, as it says.
    pub version: String,
    /// The same as a number: 150004.
    pub version_number: u32,
    /// Whether it is a standby, which takes no writes.
    pub in_recovery: bool,
    /// Whether what is committed is on the disk.
    pub fsync: bool,
    /// Whether a page that was half written in a crash can be mended.
    pub full_page_writes: bool,
    /// What a session has that does not set it; servers do.
    pub synchronous_commit: String,
    /// Whether rows that nobody needs are cleared away.
    pub autovacuum: bool,
    /// Connections that it takes from users like this one.
    pub connections_max: u32,
    /// Connections that others have.
    pub connections: u32,
    /// Which standbys a commit waits for; empty for none.
    pub synchronous_standby_names: String,
    /// Whether this user may see what standbys do.
    pub may_see_standbys: bool,
    /// Standbys that are connected.
    pub standbys: u32,
    /// Those that a commit waits for.
    pub synchronous_standbys: u32,
    /// Whether this connection was encrypted.
    pub encrypted: bool,
    /// Whether this connection came from the database's own machine.
    pub on_this_machine: bool,
    /// Whether this user may make the tables, and bring them up to date.
    pub may_create: bool,
    /// Whether a server was ever started on it.
    pub has_tables: bool,
    /// Whether this user may read and write the tables.
    pub may_use: bool,
    /// The migrations it has, if there are tables that this user may read.
    pub migrations: Option<u32>,
    /// The migrations this program has.
    pub migrations_known: u32,
    /// Its epoch, if it has tables that this user may read.
    pub epoch: Option<u32>,
    /// How far its clock is ahead of this machine's, in milliseconds, give or take half a round trip.
    pub clock_ahead_ms: i64,
    /// The shortest time from a question to its answer.
    pub round_trip: Duration,
}

/// Looks at the ledger at this address. It changes nothing, and need not have been used before.
pub async fn ledger_facts(url: &str) -> Result<LedgerFacts, OpenLedgerError> {
    let (client, _driver) = connection::plain(&database_at(url)?).await.map_err(unusable)?;
    let ask = client.query_one(include_str!("sql/facts.sql"), &[]);
    let row = within(CALL_TIME_MAX, ask).await.map_err(unusable)?;
    let (has_tables, may_use): (bool, bool) = (row.get("has_tables"), row.get("may_use"));
    let (mut migrations, mut epoch) = (None, None);
    if has_tables && may_use {
        let sql = "SELECT (SELECT count(*)::integer FROM leasehold.migrations), epoch FROM leasehold.ledger";
        let row = within(CALL_TIME_MAX, client.query_one(sql, &[])).await.map_err(unusable)?;
        (migrations, epoch) =
            (Some(row.get::<_, i32>(0).unsigned_abs()), Some(row.get::<_, i32>(1).unsigned_abs()));
    }
    let (clock_ahead_ms, round_trip) =
        within(CALL_TIME_MAX, ask_for_time(&client)).await.map_err(unusable)?;
    let count = |name: &str| u32::try_from(row.get::<_, i64>(name)).unwrap_or(u32::MAX);
    let number = |name: &str| row.get::<_, i32>(name).unsigned_abs();
    Ok(LedgerFacts {
        version: row.get("version"),
        version_number: number("version_number"),
        in_recovery: row.get("in_recovery"),
        fsync: row.get("fsync"),
        full_page_writes: row.get("full_page_writes"),
        synchronous_commit: row.get("synchronous_commit"),
        autovacuum: row.get("autovacuum"),
        connections_max: number("connections_max"),
        connections: count("connections"),
        synchronous_standby_names: row.get("synchronous_standby_names"),
        may_see_standbys: row.get("may_see_standbys"),
        standbys: count("standbys"),
        synchronous_standbys: count("synchronous"),
        encrypted: row.get("encrypted"),
        on_this_machine: row.get("on_this_machine"),
        may_create: row.get("may_create"),
        has_tables,
        may_use,
        migrations,
        migrations_known: migrate::KNOWN,
        epoch,
        clock_ahead_ms,
        round_trip,
    })
}

/// How far the ledger's clock is ahead of ours, in milliseconds, by the fastest of a few answers, and how long that took.
async fn ask_for_time(client: &Client) -> Result<(i64, Duration), tokio_postgres::Error> {
    let sql = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let statement = client.prepare(sql).await?;
    let mut fastest = (0, Duration::MAX);
    for _ in 0..QUESTIONS {
        let began = Instant::now();
        let theirs: i64 = client.query_one(&statement, &[]).await?.get(0);
        let round_trip = began.elapsed();
        if round_trip < fastest.1 {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let ours = now.saturating_sub(round_trip / 2).as_millis();
            fastest = (theirs - i64::try_from(ours).unwrap_or(i64::MAX), round_trip);
        }
    }
    Ok(fastest)
}
