//! The database that counts epochs: an epoch that it forgets is given out twice.

use std::net::IpAddr;
use std::time::Duration;

use tokio_postgres::config::{Config, Host};

use super::Chart;
use super::secrecy::{Secrecy, is_loopback};
use crate::error::{BoxError, StoreError};
use crate::postgres::Database;

const TIME_MAX: Duration = Duration::from_secs(5);

/// What its settings and its standbys are, in one row.
const QUESTION: &str = include_str!("sql/settings.sql");

pub(super) async fn examine(url: &str, chart: &mut Chart) {
    let place = place(url);
    match tokio::time::timeout(TIME_MAX, ask(url)).await {
        Ok(Ok(settings)) => settings.judge(&place, chart),
        Ok(Err(error)) => unreachable(&place, &with_sources(&*error), chart),
        Err(_) => unreachable(&place, "no answer within 5 s", chart),
    }
}

struct Settings {
    secrecy: Secrecy,
    version: String,
    fsync: String,
    synchronous_commit: String,
    in_recovery: bool,
    may_create: bool,
    standbys: i64,
    synchronous: i64,
}

async fn ask(url: &str) -> Result<Settings, BoxError> {
    let database = Database::at(url)?;
    let connected = database.connect().await.map_err(|error| match error {
        StoreError::Unknown(reason) | StoreError::Refused(reason) => reason,
    })?;
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
        may_create: row.get("may_create"),
        standbys: row.get("standbys"),
        synchronous: row.get("synchronous"),
    })
}

impl Settings {
    fn judge(&self, place: &str, chart: &mut Chart) {
        chart.ok("epochs", place, format!("PostgreSQL {} answers", self.version));
        self.secrecy.judge("epochs-encryption", place, "sslmode=require", chart);
        if self.in_recovery {
            chart.problem("epochs-role", place, "a standby: it takes no writes. Name the primary");
        }
        if self.fsync == "on" {
            chart.ok("epochs-fsync", place, "fsync is on: a crash forgets no epoch");
        } else {
            let text =
                "fsync is off: a crash can forget an epoch, and its fences are given out twice. Switch it on";
            chart.problem("epochs-fsync", place, text);
        }
        // Every session of ours sets it to `on` for itself.
        let text = format!("synchronous_commit is {} there, and `on` for epochs", self.synchronous_commit);
        chart.ok("epochs-commit", place, text);
        if !self.may_create {
            let text = "this user may not create the table of epochs, and it is not there";
            chart.problem("epochs-rights", place, text);
        }
        match (self.standbys, self.synchronous) {
            (0, _) => {
                chart.ok("epochs-standby", place, "no standby: nothing to fail over to that lags behind")
            }
            (_, 0) => {
                let text = "its standbys are asynchronous: a failover to one can forget an epoch, and its fences \
                            are given out twice. Set synchronous_standby_names, or do not fail over to them";
                chart.warn("epochs-standby", place, text);
            }
            (all, synchronous) => {
                let text =
                    format!("{synchronous} of {all} standbys are synchronous: fail over only to those");
                chart.ok("epochs-standby", place, text);
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

fn unreachable(place: &str, why: &str, chart: &mut Chart) {
    chart.is_unreachable = true;
    let text =
        format!("PostgreSQL cannot be asked: {why}. Locks on slots that need a new epoch are not granted");
    chart.problem("epochs", place, text);
}

/// The address without user and password.
fn place(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    // What is not a URL is a list of words, and one of them may be a password.
    if url.contains("://") {
        host.split('?').next().unwrap_or_default().to_owned()
    } else {
        "epochs".to_owned()
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
        assert_eq!(place("postgres://ada:hunter2@db:5432/app?password=x"), "db:5432/app");
        assert_eq!(place("host=db password=hunter2"), "epochs");
    }
}
