//! The replicas of a Redis server: how far they lag, and what a failover to one would change.

use futures_util::future::join_all;
use redis::{ConnectionAddr, ConnectionInfo};

use super::redis_server::{Part, Server};
use super::{Chart, Finding, Level};

/// A replica that has not been heard of for so long is of no use in a failover.
const LAG_MAX: u64 = 10;
/// How many are asked for their settings.
const ASKED_MAX: usize = 8;

impl Server {
    pub(super) async fn replication(&self, part: Part, has_epochs: bool, chart: &mut Chart) {
        if self.info("role") == "slave" {
            let text = "a replica: it takes no writes, and a lock read there may be gone. Name the master";
            return chart.problem("role", &self.place, text);
        }
        chart.ok("role", &self.place, "a master");
        let replicas: Vec<&String> =
            self.info.iter().filter(|(name, _)| is_replica(name)).map(|(_, value)| value).collect();
        if replicas.is_empty() {
            return chart.ok(
                "replicas",
                &self.place,
                "no replicas: nothing to fail over to that lags behind",
            );
        }
        let written: u64 = self.info("master_repl_offset").parse().unwrap_or(0);
        let behind = replicas.iter().map(|line| written.saturating_sub(number(line, "offset"))).max();
        let lag = replicas.iter().map(|line| number(line, "lag")).max().unwrap_or(0);
        let needed = self.setting("min-replicas-to-write").unwrap_or("0");
        let state = format!(
            "{} replica(s), at most {} bytes behind, last heard of {lag} s ago; min-replicas-to-write is {needed}",
            replicas.len(),
            behind.unwrap_or(0)
        );
        let why = match part {
            Part::Voter => "a failover to one puts a server into the set that has forgotten votes. Use none",
            Part::Alone => {
                "copies are made after the answer, so a failover can forget locks that were granted"
            }
        };
        let late = if lag > LAG_MAX { "; one of them is cut off" } else { "" };
        let asked = join_all(replicas.iter().take(ASKED_MAX).map(|line| self.replica(line))).await;
        let read: Vec<&Self> = asked.iter().flatten().collect();
        read.iter().for_each(|replica| self.compare(replica, part, has_epochs, chart));
        let unread = match replicas.len() - read.len() {
            0 => String::new(),
            count => format!(". The settings of {count} could not be read: give them those of the master"),
        };
        chart.warn("replicas", &self.place, format!("{state}{late}: {why}{unread}"));
    }

    /// One that it names, if it can be asked in the same way.
    async fn replica(&self, line: &str) -> Option<Self> {
        let port = u16::try_from(number(line, "port")).ok()?;
        let replica = at(self.login.as_ref()?, text(line, "ip")?.to_owned(), port);
        Self::reach_one(replica, &mut Chart::default()).await
    }

    /// Warns of what would be worse after a failover.
    fn compare(&self, replica: &Self, part: Part, has_epochs: bool, chart: &mut Chart) {
        let settings = |server: &Self| -> Vec<Finding> {
            let mut chart = Chart::default();
            server.eviction(&mut chart);
            server.persistence(part, has_epochs, &mut chart);
            chart.findings
        };
        let now = settings(self);
        for then in settings(replica) {
            let before = now.iter().find(|finding| finding.topic == then.topic).map(|finding| finding.level);
            if then.level > before.unwrap_or(Level::Ok) {
                let text = format!("after a failover to this replica: {}", then.text);
                chart.warn(then.topic, &then.place, text);
            }
        }
    }
}

/// Another server that is reached in the same way.
pub(super) fn at(login: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let address = match login.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    login.clone().set_addr(address)
}

fn is_replica(name: &str) -> bool {
    name.strip_prefix("slave")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// A value in `ip=..,port=..,state=online,offset=42,lag=0`.
fn text<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = line.split(',').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn number(line: &str, name: &str) -> u64 {
    text(line, name).and_then(|value| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_replicas_are_read() {
        let line = "ip=10.0.0.2,port=6379,state=online,offset=1234,lag=7";
        assert_eq!((number(line, "offset"), number(line, "lag"), number(line, "none")), (1234, 7, 0));
        assert_eq!((text(line, "ip"), text(line, "none")), (Some("10.0.0.2"), None));
        assert!(is_replica("slave0") && !is_replica("slave_repl_offset") && !is_replica("slave"));
    }
}
