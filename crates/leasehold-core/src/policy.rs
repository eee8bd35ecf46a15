//! The rules an event may choose.

use crate::Millis;
use crate::limits::{EXTENDS_MAX, HOLD_TTL_MAX, HOLD_TTL_MIN, PAYMENT_MAX};

/// How long holds live and who may hold how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The life of a hold whose request does not say.
    pub hold_ttl: Millis,
    /// The most a hold can live, extensions included.
    pub hold_total_max: Millis,
    /// How often a hold may be extended.
    pub extends_max: u32,
    /// The most a payment may take.
    pub payment_max: Millis,
    /// Seats and units one holder may hold and own; 0 is no limit.
    pub units_per_holder_max: u32,
    /// Payments of the event that may be in progress at a time; 0 is no limit.
    pub payments_in_flight_max: u32,
    /// Whether a payment after the end of its hold may still become a sale.
    pub accept_late_payment: bool,
    /// What becomes of a hold whose payment is still open at its deadline.
    pub at_payment_deadline: AtPaymentDeadline,
}

/// What becomes of a hold whose payment is still open at its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtPaymentDeadline {
    /// It expires.
    Expire,
    /// It stays until an operator revokes it or the payment service answers.
    Keep,
}

/// Changes to a policy: what is none stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyPatch {
    /// See [`Policy::hold_ttl`].
    pub hold_ttl: Option<Millis>,
    /// See [`Policy::hold_total_max`].
    pub hold_total_max: Option<Millis>,
    /// See [`Policy::extends_max`].
    pub extends_max: Option<u32>,
    /// See [`Policy::payment_max`].
    pub payment_max: Option<Millis>,
    /// See [`Policy::units_per_holder_max`].
    pub units_per_holder_max: Option<u32>,
    /// See [`Policy::payments_in_flight_max`].
    pub payments_in_flight_max: Option<u32>,
    /// See [`Policy::accept_late_payment`].
    pub accept_late_payment: Option<bool>,
    /// See [`Policy::at_payment_deadline`].
    pub at_payment_deadline: Option<AtPaymentDeadline>,
}

/// A policy that contradicts itself or the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    /// A hold's life is out of range.
    #[error("hold_ttl_ms must be between {} and hold_total_max_ms", HOLD_TTL_MIN.0)]
    HoldTtl,
    /// The cap on a hold's life is out of range.
    #[error("hold_total_max_ms must be at most {}", HOLD_TTL_MAX.0)]
    HoldTotal,
    /// The cap on payments is out of range.
    #[error("payment_max_ms must be between {} and {}", HOLD_TTL_MIN.0, PAYMENT_MAX.0)]
    Payment,
    /// Too many extensions.
    #[error("extends_max must be at most {EXTENDS_MAX}")]
    Extends,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            hold_ttl: Millis(5 * 60_000),
            hold_total_max: Millis(30 * 60_000),
            extends_max: 100,
            payment_max: Millis(15 * 60_000),
            units_per_holder_max: 0,
            payments_in_flight_max: 0,
            accept_late_payment: true,
            at_payment_deadline: AtPaymentDeadline::Expire,
        }
    }
}

impl Policy {
    /// The policy with these changes, if it makes sense.
    pub fn patched(self, patch: PolicyPatch) -> Result<Self, BadPolicy> {
        Self {
            hold_ttl: patch.hold_ttl.unwrap_or(self.hold_ttl),
            hold_total_max: patch.hold_total_max.unwrap_or(self.hold_total_max),
            extends_max: patch.extends_max.unwrap_or(self.extends_max),
            payment_max: patch.payment_max.unwrap_or(self.payment_max),
            units_per_holder_max: patch.units_per_holder_max.unwrap_or(self.units_per_holder_max),
            payments_in_flight_max: patch.payments_in_flight_max.unwrap_or(self.payments_in_flight_max),
            accept_late_payment: patch.accept_late_payment.unwrap_or(self.accept_late_payment),
            at_payment_deadline: patch.at_payment_deadline.unwrap_or(self.at_payment_deadline),
        }
        .checked()
    }

    /// The policy itself, if it makes sense.
    pub fn checked(self) -> Result<Self, BadPolicy> {
        if self.hold_total_max > HOLD_TTL_MAX {
            return Err(BadPolicy::HoldTotal);
        }
        if self.hold_ttl < HOLD_TTL_MIN || self.hold_ttl > self.hold_total_max {
            return Err(BadPolicy::HoldTtl);
        }
        if self.payment_max < HOLD_TTL_MIN || self.payment_max > PAYMENT_MAX {
            return Err(BadPolicy::Payment);
        }
        if self.extends_max > EXTENDS_MAX {
            return Err(BadPolicy::Extends);
        }
        Ok(self)
    }
}
