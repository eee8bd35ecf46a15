//! Availability: how every seat stands, in one small answer, and the changes since.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /v1/events/{event}/availability`: all seats, or what changed since a version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Availability {
    /// The event.
    pub event: String,
    /// The version this answer shows; pass it as `since` next time.
    pub version: String,
    /// True for the whole venue, false for the changes since the version asked for.
    pub full: bool,
    /// How the seats stand in numbers.
    pub counts: SeatCounts,
    /// One letter a seat, in the event's order: `f` free, `h` held, `s` sold, `b` blocked. Only when `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seats: Option<String>,
    /// Seats that changed. Only when not `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Vec<SeatChange>>,
    /// The pools, all of them.
    pub pools: Vec<PoolCount>,
    /// How long ago this was last known to be all, in milliseconds; absent while it is. The server's store cannot be
    /// reached then, and what was decided since is not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_ms: Option<u64>,
}

/// A seat's place in the event's order, and its new letter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SeatChange(
    /// The seat's place.
    pub u32,
    /// `f`, `h`, `s` or `b`.
    pub char,
);

/// How the seats of an event stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SeatCounts {
    /// All seats.
    pub total: u32,
    /// Seats nobody has.
    pub free: u32,
    /// Seats held by buyers who have not paid yet.
    pub held: u32,
    /// Seats sold.
    pub sold: u32,
    /// Seats kept back by the operator.
    pub blocked: u32,
}

/// How a pool stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolCount {
    /// The pool.
    pub id: String,
    /// Units there are.
    pub capacity: u32,
    /// Units nobody has.
    pub free: u32,
    /// Units held.
    pub held: u32,
    /// Units sold.
    pub sold: u32,
}

/// The first message of the stream, sent as event `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamHello {
    /// The version from which the stream goes on.
    pub version: String,
    /// As in the availability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_ms: Option<u64>,
}

/// A sign of life of the stream, sent as event `ping` every 15 seconds when nothing else was, and every 3 seconds while
/// the stream is behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamPing {
    /// As in the availability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_ms: Option<u64>,
}

/// A message of the stream, sent as event `change` with its version as the id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StreamChange {
    /// The event's version after the change; consecutive messages have consecutive versions.
    pub version: String,
    /// When it happened, RFC 3339 UTC.
    pub at: String,
    /// What happened: `hold.created`, `hold.expired`, `booking.created` and so on.
    pub kind: String,
    /// The seats it changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seats: Vec<SeatChange>,
    /// The pools it changed, as they stand after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolCount>,
}

/// Sent as event `reset` when the reader is too far behind: read the availability again, from there go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StreamReset {
    /// The event's version now.
    pub version: String,
}
