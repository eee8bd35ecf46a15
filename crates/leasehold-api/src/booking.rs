//! Bookings: sales.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ItemSpec, ItemView};

/// `POST /v1/holds/{hold}/confirm`: the hold becomes a sale.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmHold {
    /// The payment; it may arrive late. Absent for what costs nothing.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub payment_ref: Option<String>,
    /// The seller's order.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub order_ref: Option<String>,
    /// Only these of the held items; the rest goes back on sale. All of them when absent.
    #[serde(default, deserialize_with = "crate::given_objects", skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<ItemSpec>>,
}

/// `POST /v1/bookings/{booking}/cancel`: the sale is undone, and its seats are free at once.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelBooking {
    /// Why, for the log.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A sale as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BookingView {
    /// The booking's id.
    pub booking_id: String,
    /// The hold it came from.
    pub hold_id: String,
    /// The event.
    pub event: String,
    /// `booked` or `cancelled`.
    pub state: String,
    /// What was sold.
    pub items: Vec<ItemView>,
    /// Who bought it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The payment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment_ref: Option<String>,
    /// The seller's order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order_ref: Option<String>,
    /// True when the payment came after the hold had ended and everything was still free.
    pub revived: bool,
    /// When it was sold, RFC 3339 UTC.
    pub booked_at: String,
    /// When it was cancelled, RFC 3339 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_at: Option<String>,
}
