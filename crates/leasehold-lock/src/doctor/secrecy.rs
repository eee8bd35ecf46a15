//! Who can listen to a connection, and speak on it.

use std::net::IpAddr;

use super::Chart;

/// How what is said travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Secrecy {
    /// Encrypted, to a server that has shown who it is.
    Encrypted,
    /// In the clear, within this machine.
    Local,
    /// In the clear, over a network.
    Open,
}

impl Secrecy {
    /// Of a connection in the clear.
    pub(super) fn in_the_clear(is_local: bool) -> Self {
        if is_local { Self::Local } else { Self::Open }
    }

    /// `instead` is what to write to have it encrypted, and `risk` what a stranger could do.
    pub(super) fn judge(
        self,
        topic: &'static str,
        place: &str,
        instead: &str,
        risk: &str,
        chart: &mut Chart,
    ) {
        match self {
            Self::Encrypted => chart.ok(topic, place, "TLS; its certificate and host name were verified"),
            Self::Local => chart.ok(topic, place, "not encrypted, and does not leave this machine"),
            Self::Open => {
                let text = format!(
                    "not encrypted: whoever is on the way can read the password, and {risk}. Use {instead}, or see to \
                     it that the network is private"
                );
                chart.warn(topic, place, text);
            }
        }
    }
}

/// Whether a host is this machine, as far as its name tells.
pub(super) fn is_loopback(host: &str) -> bool {
    let by_address = |host: &str| host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    host == "localhost" || host.ends_with(".localhost") || by_address(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn only_what_travels_in_the_clear_is_worth_a_warning() {
        let judged = |secrecy: Secrecy| {
            let mut chart = Chart::default();
            secrecy.judge("encryption", "cache:6379", "rediss://", "take locks", &mut chart);
            chart.findings.iter().map(|finding| finding.level).collect::<Vec<_>>()
        };
        assert_eq!(judged(Secrecy::Encrypted), [Level::Ok]);
        assert_eq!(judged(Secrecy::in_the_clear(is_loopback("127.0.0.1"))), [Level::Ok]);
        assert_eq!(judged(Secrecy::in_the_clear(is_loopback("cache"))), [Level::Warning]);
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "127.0.0.1", "127.9.9.9", "::1", "redis.localhost"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["10.0.0.1", "localhost.example.com", "cache", "127.0.0.1.example.com", "::"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
