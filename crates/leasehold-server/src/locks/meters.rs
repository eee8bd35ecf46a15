//! What the server counts about locks beside the `Locker`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Default)]
pub(super) struct LockMeters {
    pub(super) waiting: Gauge,
    pub(super) ended_unreleased: Counter,
    store_failures: Family<Kind, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// How the store failed to do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    NoAnswer,
    Refused,
}

impl LockMeters {
    pub(super) fn failed(&self, failure: Failure) {
        let kind = match failure {
            Failure::NoAnswer => "no-answer",
            Failure::Refused => "refused",
        };
        self.store_failures.get_or_create(&Kind { kind }).inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("leasehold_lock");
        registry.register("waiting", "Requests that wait for a lock", self.waiting.clone());
        registry.register(
            "ended_unreleased",
            "Leases granted here that ended without being given back",
            self.ended_unreleased.clone(),
        );
        registry.register(
            "store_failures",
            "Calls that the store did not carry out",
            self.store_failures.clone(),
        );
    }
}
