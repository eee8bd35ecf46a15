//! Rate limits, by address and by event.

mod buckets;
mod exchange;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use leasehold_core::EventNo;

use self::buckets::Buckets;
pub(crate) use self::exchange::Exchange;
use crate::config::{Rate, ServerConfig};

/// The server's limits.
#[derive(Debug)]
pub(crate) struct Limits {
    by_address: Option<Limit>,
    by_event: Option<Limit>,
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
}

/// A limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exceeded {
    /// Which limit: `address` or `event`.
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
        }
    }

    pub(crate) fn check_address(&self, address: IpAddr) -> Result<(), Exceeded> {
        self.by_address.as_ref().map_or(Ok(()), |limit| limit.check(Subject::Address(address)))
    }

    pub(crate) fn check_event(&self, event: EventNo) -> Result<(), Exceeded> {
        self.by_event.as_ref().map_or(Ok(()), |limit| limit.check(Subject::Event(event)))
    }

    /// Forgets addresses and events that have not been seen for a while.
    pub(crate) fn tidy(&self) {
        self.all().for_each(|limit| limit.buckets.tidy(limit.now()));
    }

    fn all(&self) -> impl Iterator<Item = &Limit> {
        self.by_address.iter().chain(&self.by_event)
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
