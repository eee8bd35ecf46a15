//! A PostgreSQL database with epochs or leases in it: what it forgets is given out twice.

use std::net::IpAddr;
use std::time::Duration;

use tokio_postgres::config::{Config, Host};

use super::Chart;
use super::secrecy::{Secrecy, is_loopback};
use crate::error::BoxError;
use crate::postgres::Database;

const TIME_MAX: Duration = Duration::from_secs(5);

/// What its settings and its standbys are, in one row.
const QUESTION: &str = include_str!("sql/settings.sql");

/// What the database is there for.
#[derive(Clone, Copy)]
pub(super) enum Use {
    /// It counts epochs for fences on Redis.
    Epochs,
    /// The leases themselves are in it.
    Leases,
}

/// The words for one use of the database.
struct Words {
    reachable: &'static str,
    encryption: &'static str,
    role: &'static str,
    fsync: &'static str,
    commit: &'static str,
    rights: &'static str,
    standby: &'static str,
    /// What must not be forgotten.
    thing: &'static str,
    without: &'static str,
    no_rights: &'static str,
}

const EPOCHS: Words = Words {
    reachable: "epochs",
    encryption: "epochs-encryption",
    role: "epochs-role",
    fsync: "epochs-fsync",
    commit: "epochs-commit",
    rights: "epochs-rights",
    standby: "epochs-standby",
    thing: "epoch",
    without: "Locks on slots that need a new epoch are not granted",
    no_rights: "this user may not create the table of epochs, and it is not there",
};

const LEASES: Words = Words {
    reachable: "reachable",
    encryption: "encryption",
    role: "role",
    fsync: "fsync",
    commit: "commit",
    rights: "rights",
    standby: "standby",
    thing: "grant",
    without: "No lock is granted",
    no_rights: "this user may not create the schema leasehold_locks, or may not use what is in it",
};

pub(super) async fn examine(url: &str, its_use: Use, chart: &mut Chart) {
    let words = match its_use {
        Use::Epochs => &EPOCHS,
        Use::Leases => &LEASES,
    };
    let place = place(url, words);
    match tokio::time::timeout(TIME_MAX, ask(url, its_use)).await {
        Ok(Ok(settings)) => settings.judge(words, &place, chart),
        Ok(Err(error)) => unreachable(words, &place, &with_sources(&*error), chart),
        Err(_) => unreachable(words, &place, "no answer within 5 s", chart),
    }
}

struct Settings {
    secrecy: Secrecy,
    version: String,
    fsync: String,
    synchronous_commit: String,
    in_recovery: bool,
    has_rights: bool,
    standbys: i64,
    synchronous: i64,
}

async fn ask(url: &str, its_use: Use) -> Result<Settings, BoxError> {
    let database = Database::at(url)?;
    let connected = database.connect().await?;
    let secrecy = if connected.is_encrypted {
        Secrecy::Encrypted
    } else {
        Secrecy::in_the_clear(is_on_this_machine(database.config()))
    };
    let row = connected.client.query_one(QUESTION, &[]).await?;
    Ok(Settings {
        secrecy,
        version: row.get("version"),
        fsync: row.get("fsync"),
        synchronous_commit: row.get("synchronous_commit"),
        in_recovery: row.get("in_recovery"),
        has_rights: row.get(match its_use {
            Use::Epochs => "may_create_epochs",
            Use::Leases => "may_lock",
        }),
        standbys: row.get("standbys"),
        synchronous: row.get("synchronous"),
    })
}

impl Settings {
    fn judge(&self, words: &Words, place: &str, chart: &mut Chart) {
        let thing = words.thing;
        chart.ok(words.reachable, place, format!("PostgreSQL {} answers", self.version));
        let risk = "take and release locks";
        self.secrecy.judge(words.encryption, place, "sslmode=require", risk, chart);
        if self.in_recovery {
            chart.problem(words.role, place, "a standby: it takes no writes. Name the primary");
        }
        if self.fsync == "on" {
            chart.ok(words.fsync, place, format!("fsync is on: a crash forgets no {thing}"));
        } else {
            let text = format!(
                "fsync is off: a crash can forget a {thing}, and fences are given out twice. Switch it on"
            );
            chart.problem(words.fsync, place, text);
        }
        // Every session of ours sets it to `on` for itself.
        let text =
            format!("synchronous_commit is {} there, and `on` for each {thing}", self.synchronous_commit);
        chart.ok(words.commit, place, text);
        if !self.has_rights {
            chart.problem(words.rights, place, words.no_rights);
        }
        match (self.standbys, self.synchronous) {
            (0, _) => {
                chart.ok(words.standby, place, "no standby: nothing to fail over to that lags behind");
            }
            (_, 0) => {
                let text = format!(
                    "its standbys are asynchronous: a failover to one can forget a {thing}, and fences are given out \
                     twice. Set synchronous_standby_names, or do not fail over to them"
                );
                chart.warn(words.standby, place, text);
            }
            (all, synchronous) => {
                let text =
                    format!("{synchronous} of {all} standbys are synchronous: fail over only to those");
                chart.ok(words.standby, place, text);
            }
        }
    }
}

fn is_on_this_machine(config: &Config) -> bool {
    let is_local = |host: &Host| match host {
        Host::Tcp(host) => is_loopback(host),
        Host::Unix(_) => true,
    };
    // Where there are addresses, the hosts are only their names.
    match config.get_hostaddrs() {
        [] => config.get_hosts().iter().all(is_local),
        addresses => addresses.iter().all(IpAddr::is_loopback),
    }
}

fn unreachable(words: &Words, place: &str, why: &str, chart: &mut Chart) {
    chart.is_unreachable = true;
    let text = format!("PostgreSQL cannot be asked: {why}. {}", words.without);
    chart.problem(words.reachable, place, text);
}

/// The address without user and password.
fn place(url: &str, words: &Words) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    // What is not a URL is a list of words, and one of them may be a password.
    if url.contains("://") {
        host.split('?').next().unwrap_or_default().to_owned()
    } else {
        words.reachable.to_owned()
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_has_no_password() {
        assert_eq!(place("postgres://ada:hunter2@db:5432/app?password=x", &LEASES), "db:5432/app");
        assert_eq!(place("host=db password=hunter2", &EPOCHS), "epochs");
    }
}
