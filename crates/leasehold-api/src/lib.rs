//! The wire: what requests and answers of the HTTP API look like as JSON.
//!
//! Nothing here decides anything. The server converts these types to and from the rules in
//! `leasehold-core`; clients of any language can read the same shapes at `/openapi.json`.
//! Requests refuse unknown fields, so a typo in `ttl_ms` never silently means "the default".

mod availability;
mod booking;
mod event;
mod hold;
mod problem;

pub use availability::{Availability, PoolCount, SeatChange, SeatCounts, StreamChange, StreamReset};
pub use booking::{BookingView, CancelBooking, ConfirmHold};
pub use event::{
    BlockView, BlockedUnits, CreateBlock, CreateEvent, EventList, EventView, LayoutSpec, PatchEvent,
    PlacedSeat, PolicySpec, PolicyView, PoolCapacity, PoolSpec, PoolView, RowView, SeatSpec, SectionSpec,
    SectionView,
};
pub use hold::{
    BeginPayment, BestSpec, CreateHold, HoldList, HoldView, ItemSpec, ItemView, PatchHold, PaymentFailed,
    PaymentView, RevokeHold,
};
pub use problem::{Code, Problem};

/// The header that carries a hold's secret.
pub const HOLD_SECRET: &str = "hold-secret";
/// The header that makes a write repeatable.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header that marks an answer given before, and now given again.
pub const IDEMPOTENCY_REPLAYED: &str = "idempotency-replayed";

/// Reads a field that is there. `null` is not the same as absent: a client that sends it is told so.
fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}
