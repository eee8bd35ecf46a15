//! Rate limits: by address, by event, and for guesses at the secret of a hold.

mod buckets;
mod exchange;

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use leasehold_core::{EventNo, HoldId};

use self::buckets::Buckets;
pub(crate) use self::exchange::Exchange;
use crate::config::{Rate, ServerConfig};

/// Wrong secrets for one hold. Whoever has the right one is not limited by it, however many others guess.
const GUESS_RATE: Rate = Rate { per_second: 1, burst: 100 };
/// Holds share so many counters of wrong secrets: ids that nobody has cost no memory.
const GUESS_COUNTERS: u128 = 4_096;

/// The server's limits.
#[derive(Debug)]
pub(crate) struct Limits {
    by_address: Option<Limit>,
    by_event: Option<Limit>,
    by_guess: Limit,
}

#[derive(Debug)]
struct Limit {
    name: &'static str,
    rate: Rate,
    buckets: Buckets,
    started: Instant,
}

/// Whose requests are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Subject {
    Address(IpAddr),
    Event(EventNo),
    /// Wrong secrets for holds with one of these last digits, whether there are such holds or not.
    Guess(u16),
}

/// A limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exceeded {
    /// Which limit: `address`, `event` or `secret`.
    pub(crate) name: &'static str,
    pub(crate) rate: Rate,
    /// When to come back.
    pub(crate) wait: Duration,
}

impl Limits {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let limit = |name, rate| Limit::new(name, rate, config.gate.is_some());
        Self {
            by_address: config.address_rate.map(|rate| limit("address", rate)),
            by_event: config.event_rate.map(|rate| limit("event", rate)),
            by_guess: limit("secret", GUESS_RATE),
        }
    }

    pub(crate) fn check_address(&self, address: IpAddr) -> Result<(), Exceeded> {
        self.by_address.as_ref().map_or(Ok(()), |limit| limit.check(Subject::Address(client_of(address))))
    }

    pub(crate) fn check_event(&self, event: EventNo) -> Result<(), Exceeded> {
        self.by_event.as_ref().map_or(Ok(()), |limit| limit.check(Subject::Event(event)))
    }

    /// Counts a wrong secret for this hold.
    pub(crate) fn check_guess(&self, hold: HoldId) -> Result<(), Exceeded> {
        let counter = u16::try_from(hold.as_raw() % GUESS_COUNTERS).expect("there are fewer counters");
        self.by_guess.check(Subject::Guess(counter))
    }

    /// Forgets addresses and events that have not been seen for a while.
    pub(crate) fn tidy(&self) {
        self.all().for_each(|limit| limit.buckets.tidy(limit.now()));
    }

    fn all(&self) -> impl Iterator<Item = &Limit> {
        self.by_address.iter().chain(&self.by_event).chain([&self.by_guess])
    }
}

/// What counts as one client: an IPv4 address, however it is written, or an IPv6 network of 64 bits. Everybody who has
/// one IPv6 address has such a network, and could else come from another address with every request.
fn client_of(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = !0 << 64;
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
        address => address,
    }
}

impl Limit {
    fn new(name: &'static str, rate: Rate, shared: bool) -> Self {
        Self { name, rate, buckets: Buckets::new(rate, shared), started: Instant::now() }
    }

    fn check(&self, subject: Subject) -> Result<(), Exceeded> {
        let exceeded = |wait| Exceeded { name: self.name, rate: self.rate, wait };
        self.buckets.take(subject, self.now()).map_err(exceeded)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_one_client_has_one_rate() {
        let rate = Rate { per_second: 1, burst: 2 };
        let limits = Limits::new(&ServerConfig { address_rate: Some(rate), ..ServerConfig::default() });
        let is_allowed = |address: &str| limits.check_address(address.parse().unwrap()).is_ok();
        assert!(is_allowed("2001:db8:0:1::1") && is_allowed("2001:db8:0:1:ffff::2"));
        assert!(!is_allowed("2001:db8:0:1:8000:0:0:3"), "a third address of the same network");
        assert!(is_allowed("2001:db8:0:2::1"), "the network next to it");
        assert!(is_allowed("203.0.113.7") && is_allowed("::ffff:203.0.113.7"));
        assert!(!is_allowed("203.0.113.7"), "the same address in two spellings");
        assert!(is_allowed("203.0.113.8"), "an IPv4 address is one client");
    }
}
