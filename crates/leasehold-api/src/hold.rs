//! Holds: seats and units kept for a buyer who has not paid yet.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/events/{event}/holds`: all of the items, or none of them.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateHold {
    /// What to hold.
    #[serde(deserialize_with = "crate::objects")]
    pub items: Vec<ItemSpec>,
    /// Who holds it, in the seller's words; the limits per holder count by it.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// How long, in milliseconds; the event's `hold_ttl_ms` when absent.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

/// One item: exactly one of `seat`, `pool` (with `quantity`) and `best`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemSpec {
    /// A seat by its id.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub seat: Option<String>,
    /// A pool by its id.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Units of the pool; 1 when absent.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub quantity: Option<u32>,
    /// The best seats that are free, next to each other.
    #[serde(default, deserialize_with = "crate::given_object", skip_serializing_if = "Option::is_none")]
    pub best: Option<BestSpec>,
}

impl ItemSpec {
    /// The seat with this id.
    pub fn seat(id: impl Into<String>) -> Self {
        Self { seat: Some(id.into()), ..Self::default() }
    }

    /// Units of the pool with this id.
    pub fn pool(id: impl Into<String>, quantity: u32) -> Self {
        Self { pool: Some(id.into()), quantity: Some(quantity), ..Self::default() }
    }

    /// The best `count` seats together, anywhere.
    pub fn best(count: u32) -> Self {
        Self { best: Some(BestSpec { count, section: None }), ..Self::default() }
    }
}

/// Seats next to each other, chosen by the server.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BestSpec {
    /// How many, at least 1.
    pub count: u32,
    /// Only in this section.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
}

/// `PATCH /v1/holds/{hold}`: a longer life, more items, fewer items; all of it or none.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchHold {
    /// The hold ends this long from now, if that is later than now planned and within the cap.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub extend_ms: Option<u64>,
    /// Items to add.
    #[serde(deserialize_with = "crate::objects", default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<ItemSpec>,
    /// Items to give back.
    #[serde(deserialize_with = "crate::objects", default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<ItemSpec>,
    /// Refused with `version-mismatch` unless the hold still has this version.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
}

/// `POST /v1/holds/{hold}/payment`: the buyer is being sent to pay, so the hold's time stands still.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginPayment {
    /// The payment's id at the payment service, unique in the event.
    pub payment_ref: String,
    /// How long the payment may take; the event's `payment_max_ms` when absent.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub max_wait_ms: Option<u64>,
}

/// `POST /v1/holds/{hold}/payment/failed`: the payment service said no.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PaymentFailed {
    /// The payment that failed.
    pub payment_ref: String,
}

/// `POST /v1/holds/{hold}/revoke`: an operator takes the hold away.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeHold {
    /// Why, for the log.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A hold as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HoldView {
    /// The hold's id.
    pub hold_id: String,
    /// Proof of holding, needed in the `Hold-Secret` header from here on. Only in the answer that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The event.
    pub event: String,
    /// `held`, `confirming`, `confirmed`, `released`, `expired` or `revoked`.
    pub state: String,
    /// What is held, or was.
    pub items: Vec<ItemView>,
    /// Who holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Grows with every change of the hold.
    pub version: u32,
    /// When it was granted, RFC 3339 UTC.
    pub created_at: String,
    /// When it ends, RFC 3339 UTC. At this instant it is over.
    pub expires_at: String,
    /// Milliseconds from this answer to `expires_at`, for countdowns that do not trust the client's clock.
    pub expires_in_ms: u64,
    /// No extension goes past this instant, RFC 3339 UTC.
    pub hard_deadline: String,
    /// The payment in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment: Option<PaymentView>,
    /// The sale it became.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking_id: Option<String>,
    /// How that sale stands, `booked` or `cancelled`. Only when a hold is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking_state: Option<String>,
}

/// A payment in progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PaymentView {
    /// The payment's id at the payment service.
    pub payment_ref: String,
    /// The instant after which the payment is late, RFC 3339 UTC.
    pub deadline: String,
}

/// One thing held or sold: a seat with its fence, or units of a pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ItemView {
    /// The seat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<String>,
    /// The seat's fence: it grows each time the seat changes hands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Units of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantity: Option<u32>,
}

/// A page of an event's live holds, for operators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HoldList {
    /// Holds in no particular order, without their secrets.
    pub holds: Vec<HoldView>,
    /// Pass it as `after` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A payment that must be given back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RefundView {
    /// The payment.
    pub payment_ref: String,
    /// The hold it was for.
    pub hold_id: String,
    /// Who had the hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
}

/// A page of an event's payments that must be given back, for operators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RefundList {
    /// Payments in no particular order; those of one hold are on one page.
    pub refunds: Vec<RefundView>,
    /// Pass it as `after` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
