//! The log, for operators: what happened, and how the things it happened to stand now.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BlockView, BookingView, HoldView, PoolCount};

/// A page of an event's log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogView {
    /// The event.
    pub event: String,
    /// What happened, newest first.
    pub entries: Vec<LogEntryView>,
    /// The holds it happened to, as they stand now, without their secrets; a hold that is forgotten is not here.
    pub holds: Vec<HoldView>,
    /// The bookings they became.
    pub bookings: Vec<BookingView>,
    /// The block on the seat that was asked for.
    pub blocks: Vec<BlockView>,
    /// Who has the seat that was asked for; absent when nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<SeatOwnerView>,
    /// The oldest version that was looked at. What happened before is not remembered, or on the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked_back_to: Option<String>,
    /// Pass it as `before` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// `GET /v1/operator/replicas`: the servers on one ledger. Empty for a server on a data file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaList {
    /// Those that are connected to the ledger now.
    pub replicas: Vec<ReplicaView>,
}

/// A server on a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaView {
    /// A name of this life of it: it has another after a restart.
    pub id: String,
    /// The program's version.
    pub version: String,
    /// The address that it listens on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listens_on: Option<String>,
    /// The address that the ledger sees it at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connects_from: Option<String>,
    /// How long ago it last asked the ledger anything; one that works does so all the time, one that stands still does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_ms: Option<u64>,
    /// Whether it is the server that answers.
    pub is_this: bool,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogEntryView {
    /// The event's version after it.
    pub version: String,
    /// When, RFC 3339 UTC.
    pub at: String,
    /// What, as in the stream.
    pub kind: String,
    /// The hold it happened to, or that the booking came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_id: Option<String>,
    /// Why an operator took the hold away or blocked the seats, if they said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Seats that changed, each with its new letter as in the availability.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seats: Vec<(String, String)>,
    /// How many more seats changed than are shown.
    pub seats_left_out: usize,
    /// Pools that changed, as they stood after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolCount>,
}

/// Who has a seat: exactly one of these.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SeatOwnerView {
    /// A buyer who has not paid yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_id: Option<String>,
    /// A buyer who has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking_id: Option<String>,
    /// The operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_id: Option<String>,
}

/// What went wrong since the server was started, the last first; only the last ones are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TroubleList {
    /// The problems.
    pub problems: Vec<TroubleView>,
}

/// An answer that was an error of the server's, or took long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TroubleView {
    /// When, RFC 3339 UTC.
    pub at: String,
    /// The request's method.
    pub method: String,
    /// The request's path.
    pub path: String,
    /// The answer's status.
    pub status: u16,
    /// The problem's code, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// How long the answer took.
    pub took_ms: f64,
    /// Finds the request in the server's log.
    pub request_id: String,
}
