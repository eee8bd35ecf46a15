//! What a `Locker` counts, in Prometheus' terms.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::error::LostReason;

/// Counters of a `Locker`. Cloning shares them.
#[derive(Debug, Clone)]
pub struct Meters {
    /// Locks granted.
    pub granted: Counter,
    /// Acquisitions that met another owner at first.
    pub contended: Counter,
    /// Acquisitions that were not granted in the time they had.
    pub timed_out: Counter,
    /// Calls for renewal that failed or were not answered, per lease.
    pub renewal_failures: Counter,
    /// Locks released in the background: dropped guards and abandoned acquisitions.
    pub reaped: Counter,
    /// Seconds from asking to the grant.
    pub wait_seconds: Histogram,
    /// Seconds from the grant to the end.
    pub hold_seconds: Histogram,
    lost: Family<Reason, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            granted: Counter::default(),
            contended: Counter::default(),
            timed_out: Counter::default(),
            renewal_failures: Counter::default(),
            reaped: Counter::default(),
            wait_seconds: Histogram::new([0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0]),
            hold_seconds: Histogram::new([0.001, 0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0, 3_600.0]),
            lost: Family::default(),
        }
    }
}

impl Meters {
    /// Counts a lease that ended before its holder gave it back.
    pub fn lost(&self, reason: LostReason) {
        let reason = match reason {
            LostReason::NotRenewed => "not-renewed",
            LostReason::Gone => "gone",
            LostReason::HeldTooLong => "held-too-long",
        };
        self.lost.get_or_create(&Reason { reason }).inc();
    }

    /// Notes how long a lock was held.
    pub fn held(&self, time: Duration) {
        self.hold_seconds.observe(time.as_secs_f64());
    }

    /// Makes the counters visible in a registry.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("leasehold_lock");
        registry.register("granted", "Locks granted", self.granted.clone());
        registry.register("contended", "Acquisitions that met another owner", self.contended.clone());
        registry.register("timed_out", "Acquisitions not granted in time", self.timed_out.clone());
        registry.register(
            "renewal_failures",
            "Renewals that failed or were not answered",
            self.renewal_failures.clone(),
        );
        registry.register("reaped", "Locks released in the background", self.reaped.clone());
        registry.register("lost", "Leases lost by their holders, by reason", self.lost.clone());
        registry.register("wait_seconds", "From asking to the grant", self.wait_seconds.clone());
        registry.register("hold_seconds", "From the grant to the end", self.hold_seconds.clone());
    }
}
