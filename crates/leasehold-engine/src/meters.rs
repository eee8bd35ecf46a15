//! What an engine counts, in Prometheus' terms.

use std::sync::atomic::AtomicI64;

use leasehold_core::{Kind, Refusal};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[cfg(feature = "cluster")]
use crate::cluster::Sight;

/// Counters of an engine. Cloning shares them.
#[derive(Debug, Clone)]
pub struct Meters {
    /// Holds granted.
    pub granted: Counter,
    /// Sales.
    pub sold: Counter,
    /// Sales undone.
    pub cancelled: Counter,
    /// Holds whose time ran out.
    pub expired: Counter,
    /// Holds given back.
    pub released: Counter,
    /// Holds taken away.
    pub revoked: Counter,
    /// Confirms that came too late for a sale.
    pub confirm_conflicts: Counter,
    /// Answers given again under an idempotency key.
    pub replayed: Counter,
    /// Commands turned away, to come back later.
    pub shed: Counter,
    /// Seconds from a hold's grant to its end.
    pub hold_seconds: Histogram,
    /// Commands in one commit.
    pub commit_commands: Histogram,
    /// Seconds one commit took.
    pub commit_seconds: Histogram,
    /// Commands waiting.
    pub queue_depth: Gauge<i64, AtomicI64>,
    /// Log entries that the tables do not show yet.
    pub tables_behind: Gauge<i64, AtomicI64>,
    /// Holds that are kept although their payments are late.
    pub holds_overdue: Gauge<i64, AtomicI64>,
    /// What a server on a ledger sees of it.
    #[cfg(feature = "cluster")]
    ledger: Option<Sight>,
    /// Of the gate, if there is one.
    #[cfg(feature = "cluster")]
    pub gate: Option<crate::GateMeters>,
    refused: Family<Reason, Counter>,
    /// The hot reasons, looked up once.
    refused_seat_taken: Counter,
    refused_sold_out: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

impl Default for Meters {
    fn default() -> Self {
        let refused = Family::<Reason, Counter>::default();
        let of = |reason| refused.get_or_create(&Reason { reason }).clone();
        Self {
            granted: Counter::default(),
            sold: Counter::default(),
            cancelled: Counter::default(),
            expired: Counter::default(),
            released: Counter::default(),
            revoked: Counter::default(),
            confirm_conflicts: Counter::default(),
            replayed: Counter::default(),
            shed: Counter::default(),
            hold_seconds: Histogram::new([1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 7_200.0]),
            commit_commands: Histogram::new([1.0, 4.0, 16.0, 64.0, 256.0, 1_024.0]),
            commit_seconds: Histogram::new([0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]),
            queue_depth: Gauge::default(),
            tables_behind: Gauge::default(),
            holds_overdue: Gauge::default(),
            #[cfg(feature = "cluster")]
            ledger: None,
            #[cfg(feature = "cluster")]
            gate: None,
            refused_seat_taken: of("seat-taken"),
            refused_sold_out: of("sold-out"),
            refused,
        }
    }
}

impl Meters {
    /// Of a server on a ledger.
    #[cfg(feature = "cluster")]
    pub(crate) fn of_ledger(sight: Sight) -> Self {
        Self { ledger: Some(sight), ..Self::default() }
    }

    /// Counts a refusal by its reason.
    pub fn refused(&self, refusal: &Refusal) {
        let hot = match refusal {
            Refusal::SeatsTaken(_) => &self.refused_seat_taken,
            Refusal::PoolShort { .. } | Refusal::NotTogether { .. } => &self.refused_sold_out,
            other => return self.refused_rarely(other),
        };
        hot.inc();
    }

    fn refused_rarely(&self, refusal: &Refusal) {
        let reason = match refusal {
            Refusal::SeatsTaken(_) => "seat-taken",
            Refusal::PoolShort { .. } | Refusal::NotTogether { .. } => "sold-out",
            Refusal::NotFound => "not-found",
            Refusal::NotYet => "not-yet",
            Refusal::EventClosed => "event-closed",
            Refusal::EventExists => "event-exists",
            Refusal::HoldForgotten(_) => "hold-forgotten",
            Refusal::HoldOver(_) => "hold-over",
            Refusal::HoldIs(_) => "hold-state",
            Refusal::SaleCancelled(_) => "sale-cancelled",
            Refusal::ExtendCap => "extend-cap",
            Refusal::VersionMismatch(_) => "version-mismatch",
            Refusal::HolderLimit { .. } => "limit-per-holder",
            Refusal::CapacityInUse { .. } => "capacity-in-use",
            Refusal::PaymentRefUsed => "payment-ref-used",
            Refusal::PaymentCap => "payment-cap",
            Refusal::PaymentsBusy => "payments-busy",
            Refusal::Invalid(_) | Refusal::BadPolicy(_) => "invalid",
        };
        self.refused.get_or_create(&Reason { reason }).inc();
    }

    /// Counts what happened.
    pub(crate) fn count(&self, kind: Kind) {
        let counter = match kind {
            Kind::HoldCreated => &self.granted,
            Kind::HoldExpired => &self.expired,
            Kind::HoldReleased => &self.released,
            Kind::HoldRevoked => &self.revoked,
            Kind::BookingCreated => &self.sold,
            Kind::BookingCancelled => &self.cancelled,
            Kind::RefundDue => &self.confirm_conflicts,
            _ => return,
        };
        counter.inc();
    }

    /// Makes the counters visible in a registry.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("leasehold");
        registry.register("holds_granted", "Holds granted", self.granted.clone());
        registry.register("refused", "Commands refused, by reason", self.refused.clone());
        registry.register("bookings_created", "Sales", self.sold.clone());
        registry.register("bookings_cancelled", "Sales undone", self.cancelled.clone());
        registry.register("holds_expired", "Holds whose time ran out", self.expired.clone());
        registry.register("holds_released", "Holds given back", self.released.clone());
        registry.register("holds_revoked", "Holds taken away", self.revoked.clone());
        registry.register(
            "confirm_conflicts",
            "Confirms too late for a sale",
            self.confirm_conflicts.clone(),
        );
        registry.register("replayed", "Answers given again under an idempotency key", self.replayed.clone());
        registry.register("shed", "Commands turned away, to come back later", self.shed.clone());
        registry.register("hold_seconds", "From a hold's grant to its end", self.hold_seconds.clone());
        registry.register("commit_commands", "Commands in one commit", self.commit_commands.clone());
        registry.register("commit_seconds", "Time of one commit", self.commit_seconds.clone());
        registry.register("queue_depth", "Commands waiting", self.queue_depth.clone());
        registry.register(
            "tables_behind_entries",
            "Log entries that the tables do not show yet",
            self.tables_behind.clone(),
        );
        registry.register(
            "holds_overdue",
            "Holds that are kept although their payments are late",
            self.holds_overdue.clone(),
        );
        #[cfg(feature = "cluster")]
        if let Some(ledger) = &self.ledger {
            ledger.register(registry.sub_registry_with_prefix("ledger"));
        }
        #[cfg(feature = "cluster")]
        if let Some(gate) = &self.gate {
            gate.register(registry);
        }
    }
}
