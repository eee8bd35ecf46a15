//! What the gate counts.

use std::sync::atomic::AtomicI64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counters of a gate. Cloning shares them.
#[derive(Debug, Clone, Default)]
pub struct GateMeters {
    /// New holds that were turned away.
    pub refused: Counter,
    /// New holds that were let through to the ledger.
    pub admitted: Counter,
    /// Calls of Redis that failed or took too long.
    pub failures: Counter,
    /// Claims of units that went to a bucket, because many asked at a time.
    pub spread: Counter,
    /// Sections that were written anew because Redis did not know them.
    pub rebuilt: Counter,
    /// 1 while all of Redis is asked, 0 while what is in some part of it goes straight to the ledger.
    pub up: Gauge<i64, AtomicI64>,
}

impl GateMeters {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("gate");
        registry.register("refused", "New holds that the gate turned away", self.refused.clone());
        registry.register("admitted", "New holds that the gate let through", self.admitted.clone());
        registry.register("failures", "Calls of the gate that failed", self.failures.clone());
        registry.register("spread", "Claims of units in a bucket of a hot pool", self.spread.clone());
        registry.register("rebuilt", "Sections that the gate was told anew", self.rebuilt.clone());
        registry.register(
            "up",
            "1 while all of the gate is asked, 0 while some part of it is not",
            self.up.clone(),
        );
    }
}
