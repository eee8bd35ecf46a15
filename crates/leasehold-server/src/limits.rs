//! Rate limits, by address and by event.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use leasehold_core::EventNo;

use crate::config::{Rate, ServerConfig};

/// The server's limits.
#[derive(Debug)]
pub(crate) struct Limits {
    by_address: Option<Limit<IpAddr>>,
    by_event: Option<Limit<EventNo>>,
}

#[derive(Debug)]
struct Limit<K: std::hash::Hash + Eq + Clone> {
    name: &'static str,
    rate: Rate,
    limiter: DefaultKeyedRateLimiter<K>,
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
        Self {
            by_address: config.address_rate.map(|rate| Limit::new("address", rate)),
            by_event: config.event_rate.map(|rate| Limit::new("event", rate)),
        }
    }

    pub(crate) fn check_address(&self, address: IpAddr) -> Result<(), Exceeded> {
        self.by_address.as_ref().map_or(Ok(()), |limit| limit.check(&address))
    }

    pub(crate) fn check_event(&self, event: EventNo) -> Result<(), Exceeded> {
        self.by_event.as_ref().map_or(Ok(()), |limit| limit.check(&event))
    }

    /// Forgets addresses and events that have not been seen for a while.
    pub(crate) fn tidy(&self) {
        if let Some(limit) = &self.by_address {
            limit.limiter.retain_recent();
        }
        if let Some(limit) = &self.by_event {
            limit.limiter.retain_recent();
        }
    }
}

impl<K: std::hash::Hash + Eq + Clone> Limit<K> {
    fn new(name: &'static str, rate: Rate) -> Self {
        let at_least_one = |number: u32| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(at_least_one(rate.per_second)).allow_burst(at_least_one(rate.burst));
        Self { name, rate, limiter: RateLimiter::keyed(quota) }
    }

    fn check(&self, key: &K) -> Result<(), Exceeded> {
        self.limiter.check_key(key).map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now());
            Exceeded { name: self.name, rate: self.rate, wait }
        })
    }
}
