//! The peer for the hot seat: PostgreSQL, where every buyer locks the seat's row to look at it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio_postgres::types::ToSql;
use tokio_postgres::{NoTls, Row};

use crate::load::{Clients, Loaded};

/// A PostgreSQL server on a free port of this machine, stopped when dropped.
pub(crate) struct Postgres {
    folder: tempfile::TempDir,
    programs: PathBuf,
    port: u16,
}

/// Statements of one kind.
pub(crate) struct Statements {
    text: String,
    calls: i64,
}

impl Postgres {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let programs = programs()?;
        // Not in the benchmark's folder: the server runs as another user, who may not look there.
        let folder = tempfile::Builder::new().prefix("leasehold-pg").tempdir_in("/var/tmp")?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let this = Self { folder, programs, port };
        if running_as_root() {
            let path = this.folder.path().to_str().context("the path is UTF-8")?;
            ensure!(Command::new("chown").args(["postgres", path]).status()?.success(), "chown to postgres");
        }
        let data = this.data();
        this.run("initdb", &["-D", &data, "-U", "postgres", "-A", "trust", "--no-locale", "-E", "UTF8"])?;
        let folder = this.folder.path().display();
        let options = format!(
            "-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c max_connections=100 \
             -c shared_preload_libraries=pg_stat_statements"
        );
        let log = this.folder.path().join("log").display().to_string();
        this.run("pg_ctl", &["-D", &data, "-w", "-l", &log, "-o", &options, "start"])?;
        Ok(this)
    }

    /// Buyers that all want one seat: each locks its row, sees that it is taken, and lets go.
    pub(crate) async fn hot_seat(&self, clients: usize, duration: Duration) -> anyhow::Result<Loaded> {
        let settings = format!("host=127.0.0.1 port={} user=postgres", self.port);
        let (setup, connection) = tokio_postgres::connect(&settings, NoTls).await?;
        tokio::spawn(connection);
        setup
            .batch_execute(
                "CREATE TABLE IF NOT EXISTS seat (id text PRIMARY KEY, hold_id text, live_until timestamptz);
                 INSERT INTO seat VALUES ('A-1', 'first', clock_timestamp() + interval '1 hour')
                 ON CONFLICT DO NOTHING",
            )
            .await?;
        let mut buyers = Clients::default();
        for _ in 0..clients {
            let (mut client, connection) = tokio_postgres::connect(&settings, NoTls).await?;
            tokio::spawn(connection);
            let look = client
                .prepare("SELECT live_until > clock_timestamp() FROM seat WHERE id = 'A-1' FOR UPDATE")
                .await?;
            buyers.add(|turns| async move {
                while turns.go_on() {
                    let transaction = client.transaction().await?;
                    let taken: bool = transaction.query_one(&look, &[]).await?.get(0);
                    transaction.commit().await?;
                    ensure!(taken, "the seat is taken throughout");
                    turns.done();
                }
                Ok(())
            });
        }
        buyers.run_for(duration).await
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// A commit that is not on the disk is none.
    pub(crate) async fn require_durable(&self) -> anyhow::Result<()> {
        let client = self.client().await?;
        for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
            let value: String = client.query_one(&format!("SHOW {setting}"), &[]).await?.get(0);
            ensure!(value == "on", "{setting} is {value}");
        }
        Ok(())
    }

    /// Holds a second the way they are mostly made: lock the seat's row, look, write hold, seat and log, commit.
    pub(crate) async fn hold_by_hold(&self, clients: usize, duration: Duration) -> anyhow::Result<f64> {
        let setup = self.client().await?;
        setup
            .batch_execute(
                "DROP SCHEMA IF EXISTS peer CASCADE; CREATE SCHEMA peer;
                 CREATE TABLE peer.seat (id integer PRIMARY KEY, hold_id uuid, live_until timestamptz, fence bigint);
                 CREATE TABLE peer.hold (id uuid PRIMARY KEY, seat integer, live_until timestamptz);
                 CREATE TABLE peer.log (seq bigserial PRIMARY KEY, at timestamptz, kind text, hold_id uuid, seat integer);
                 INSERT INTO peer.seat SELECT n, NULL, NULL, 0 FROM generate_series(0, 299999) AS n;
                 ANALYZE peer.seat",
            )
            .await?;
        let next_seat = std::sync::Arc::new(std::sync::atomic::AtomicI32::new(0));
        let mut buyers = Clients::default();
        for _ in 0..clients {
            let (mut client, connection) = tokio_postgres::connect(&self.url(), NoTls).await?;
            tokio::spawn(connection);
            let look = "SELECT hold_id IS NULL OR live_until <= clock_timestamp() FROM peer.seat WHERE id = $1 FOR UPDATE";
            let look = client.prepare(look).await?;
            let take = "UPDATE peer.seat SET hold_id = $2, live_until = clock_timestamp() + interval '5 min',
                        fence = fence + 1 WHERE id = $1";
            let take = client.prepare(take).await?;
            let hold = "INSERT INTO peer.hold VALUES ($2, $1, clock_timestamp() + interval '5 min')";
            let hold = client.prepare(hold).await?;
            let log =
                "INSERT INTO peer.log (at, kind, hold_id, seat) VALUES (clock_timestamp(), 'hold', $2, $1)";
            let log = client.prepare(log).await?;
            let next_seat = std::sync::Arc::clone(&next_seat);
            buyers.add(|turns| async move {
                while turns.go_on() {
                    let seat = next_seat.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let id = uuid::Uuid::now_v7();
                    let transaction = client.transaction().await?;
                    let free: bool = transaction.query_one(&look, &[&seat]).await?.get(0);
                    ensure!(free, "every seat is asked for once");
                    // Sent together: the peer shall not be slow because of round trips that it could save.
                    let arguments: [&(dyn ToSql + Sync); 2] = [&seat, &id];
                    tokio::try_join!(
                        transaction.execute(&take, &arguments),
                        transaction.execute(&hold, &arguments),
                        transaction.execute(&log, &arguments)
                    )?;
                    transaction.commit().await?;
                    turns.done();
                }
                Ok(())
            });
        }
        Ok(buyers.run_for(duration).await?.per_second())
    }

    /// Begins to count statements anew.
    pub(crate) async fn count_anew(&self) -> anyhow::Result<()> {
        let sql = "CREATE EXTENSION IF NOT EXISTS pg_stat_statements; SELECT pg_stat_statements_reset()";
        Ok(self.client().await?.batch_execute(sql).await?)
    }

    /// Statements since then, by their kinds.
    pub(crate) async fn statements(&self) -> anyhow::Result<HashMap<i64, Statements>> {
        let sql = "SELECT queryid, min(query), sum(calls)::bigint FROM pg_stat_statements
                   WHERE toplevel AND queryid <> 0 GROUP BY queryid";
        let rows = self.client().await?.query(sql, &[]).await?;
        let of_kind = |row: &Row| (row.get(0), Statements { text: row.get(1), calls: row.get(2) });
        Ok(rows.iter().map(of_kind).collect())
    }

    /// Statements since then that are more than those of another time, so many times as long. Whatever goes on for itself may
    /// fall into one of two equal times once more than into the other, and goes on a little faster on a machine that is awake.
    pub(crate) async fn statements_above(
        &self,
        idle: &HashMap<i64, Statements>,
        times: f64,
    ) -> anyhow::Result<f64> {
        /// Asked by the sweeper alone, and the more often the more old entries of the log it has to delete: nobody's refusal
        /// is behind it.
        const OF_THE_SWEEPER: &str = "-- Events with holds that are over";
        let mut above = 0.0;
        let statements = self.statements().await?.into_iter();
        for (kind, Statements { text, calls }) in
            statements.filter(|(_, statement)| !statement.text.starts_with(OF_THE_SWEEPER))
        {
            let usual = idle.get(&kind).map_or(0.0, |idle| (idle.calls + 1) as f64 * 1.1 * times);
            let more = calls as f64 - usual;
            if more > 0.0 {
                println!("{more:.0} of {:.100}", text.replace('\n', " "));
                above += more;
            }
        }
        Ok(above)
    }

    async fn client(&self) -> anyhow::Result<tokio_postgres::Client> {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    /// PostgreSQL refuses to run as root.
    fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<()> {
        let program = self.programs.join(program);
        let mut command = match running_as_root() {
            true => {
                let mut command = Command::new("runuser");
                command.args(["-u", "postgres", "--"]).arg(&program);
                command
            }
            false => Command::new(&program),
        };
        let output = command.args(args).current_dir("/").output()?;
        ensure!(
            output.status.success(),
            "{}: {}",
            program.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Err(error) = self.run("pg_ctl", &["-D", &self.data(), "-m", "immediate", "stop"]) {
            eprintln!("PostgreSQL was not stopped: {error}");
        }
    }
}

fn running_as_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn programs() -> anyhow::Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        versions.map(|version| version.path().join("bin")).filter(|bin| has(bin)).collect();
    found.sort();
    match found.pop() {
        Some(bin) => Ok(bin),
        None => bail!("PostgreSQL is not installed: apt-get install postgresql"),
    }
}

fn has(bin: &Path) -> bool {
    bin.join("initdb").exists() && bin.join("pg_ctl").exists()
}
