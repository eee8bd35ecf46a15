//! Events: what is for sale, under which rules.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::SeatCounts;

/// `POST /v1/events`: a new event with seats, or a layout of seats, and counted pools.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateEvent {
    /// The event's id in every path: letters, digits and `. _ ~ : @ + -`, at most 128 of them.
    pub id: String,
    /// A name for people; the id when absent.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Seats one by one. Seats of one row stand next to each other in the order given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seats: Vec<SeatSpec>,
    /// Seats by arithmetic, instead of `seats`: seat 3 of row 2 in section A is `A-2-3`.
    #[serde(default, deserialize_with = "crate::given_object", skip_serializing_if = "Option::is_none")]
    pub layout: Option<LayoutSpec>,
    /// Counted stock: standing places, bottles, licences.
    #[serde(deserialize_with = "crate::objects", default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolSpec>,
    /// Rules that differ from the defaults.
    #[serde(default, deserialize_with = "crate::given_object", skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicySpec>,
}

/// A seat: its id alone (`"A-12"` stands in section `A`), or with its section and row.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum SeatSpec {
    /// Only the id. What stands before the last `-` is its section.
    Id(String),
    /// The id with its place.
    Placed(#[serde(deserialize_with = "crate::object")] PlacedSeat),
}

/// A seat with its place in the venue.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacedSeat {
    /// The seat's id, unique in the event.
    pub id: String,
    /// The section it stands in.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// The row within the section.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
}

/// A venue described by its sections.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LayoutSpec {
    /// The sections, best first: best-available looks through them in this order.
    #[serde(deserialize_with = "crate::objects")]
    pub sections: Vec<SectionSpec>,
}

/// A rectangular section.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SectionSpec {
    /// The section's name, the first part of its seats' ids.
    pub name: String,
    /// How many rows, at least 1.
    pub rows: u32,
    /// How many seats in each row, at least 1.
    pub seats_per_row: u32,
}

/// Counted stock.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// The pool's id, unique in the event.
    pub id: String,
    /// How many units there are to sell.
    pub capacity: u32,
}

/// Rules of an event; what is left out keeps its default (on creation) or its value (on change).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicySpec {
    /// How long a hold lives when the request does not say.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub hold_ttl_ms: Option<u64>,
    /// The most a hold can live in total, extensions included.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub hold_total_max_ms: Option<u64>,
    /// How often a hold may be extended.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub extends_max: Option<u32>,
    /// The most a payment may take, from its beginning.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub payment_max_ms: Option<u64>,
    /// The most seats and units one holder may hold and own at a time; 0 is no limit.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub units_per_holder_max: Option<u32>,
    /// The most payments of the event that may be in progress at a time; 0 is no limit.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub payments_in_flight_max: Option<u32>,
    /// Whether a payment that arrives after the hold ended may revive it.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub accept_late_payment: Option<bool>,
    /// What happens at the payment deadline: `expire` frees the seats, `keep` leaves them to an operator.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub at_payment_deadline: Option<String>,
}

/// The rules of an event as they stand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicyView {
    /// How long a hold lives when the request does not say.
    pub hold_ttl_ms: u64,
    /// The most a hold can live in total, extensions included.
    pub hold_total_max_ms: u64,
    /// How often a hold may be extended.
    pub extends_max: u32,
    /// The most a payment may take, from its beginning.
    pub payment_max_ms: u64,
    /// The most seats and units one holder may hold and own at a time; 0 is no limit.
    pub units_per_holder_max: u32,
    /// The most payments of the event that may be in progress at a time; 0 is no limit.
    #[serde(default)]
    pub payments_in_flight_max: u32,
    /// Whether a payment that arrives after the hold ended may revive it.
    pub accept_late_payment: bool,
    /// What happens at the payment deadline: `expire` or `keep`.
    pub at_payment_deadline: String,
}

/// `PATCH /v1/events/{event}`: other rules, other capacities, open or closed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchEvent {
    /// Rules to change.
    #[serde(default, deserialize_with = "crate::given_object", skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicySpec>,
    /// New capacities. A capacity never falls below what is sold, held and blocked.
    #[serde(deserialize_with = "crate::objects", default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolCapacity>,
    /// `open` or `closed`. Closing revokes the holds nobody is paying for.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// A pool's new capacity.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolCapacity {
    /// The pool.
    pub id: String,
    /// Its new capacity.
    pub capacity: u32,
}

/// An event as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// The event's id.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// `open` or `closed`.
    pub state: String,
    /// The event's version, `epoch-number`: it grows by one with every change.
    pub version: String,
    /// How the seats stand.
    pub seats: SeatCounts,
    /// How the pools stand.
    pub pools: Vec<PoolView>,
    /// The rules.
    pub policy: PolicyView,
    /// When it was created, RFC 3339 UTC.
    pub created_at: String,
    /// The venue, only for a single event: sections and rows, with their seats' places in `seats`
    /// of the availability answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<SectionView>,
    /// The seats' ids in order, only when asked for with `?seats=true`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seat_ids: Vec<String>,
    /// How long ago this was last known to be how it stands, in milliseconds; absent while it is. The server's store
    /// cannot be reached then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_ms: Option<u64>,
}

/// What never changes of an event, for drawing it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VenueView {
    /// The event's id.
    pub event: String,
    /// Its name for people.
    pub name: String,
    /// Sections and rows, with their seats' places in `seat_ids` and in the availability.
    pub sections: Vec<SectionView>,
    /// The seats' ids, in order.
    pub seat_ids: Vec<String>,
    /// The pools' ids, in order.
    pub pools: Vec<String>,
}

/// A section of the venue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SectionView {
    /// Its name; empty for seats without a section.
    pub name: String,
    /// Its rows in order.
    pub rows: Vec<RowView>,
}

/// Seats that stand next to each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RowView {
    /// The row's name within its section; empty when seats have none.
    pub name: String,
    /// The place of its first seat in the availability answer.
    pub first: u32,
    /// How many seats it has.
    pub count: u32,
}

/// A pool as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolView {
    /// The pool's id.
    pub id: String,
    /// Units there are.
    pub capacity: u32,
    /// Units nobody has.
    pub free: u32,
    /// Units held by buyers who have not paid yet.
    pub held: u32,
    /// Units sold.
    pub sold: u32,
    /// Units kept back by the operator.
    pub blocked: u32,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// Events in the order of their creation.
    pub events: Vec<EventView>,
    /// Pass it as `after` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// `POST /v1/events/{event}/blocks`: seats kept back from sale.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateBlock {
    /// The seats. Each must be free.
    #[serde(default)]
    pub seats: Vec<String>,
    /// Units of pools.
    #[serde(deserialize_with = "crate::objects", default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<BlockedUnits>,
    /// Why, for the log.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Units of a pool kept back from sale.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockedUnits {
    /// The pool.
    pub id: String,
    /// How many units, at least 1.
    pub quantity: u32,
}

/// A block as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BlockView {
    /// The block's id, for `DELETE`.
    pub block_id: String,
    /// The event.
    pub event: String,
    /// The seats kept back.
    pub seats: Vec<String>,
    /// The units kept back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<BlockedUnits>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When, RFC 3339 UTC.
    pub created_at: String,
}

/// A page of what is kept back from an event's sale, for operators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BlockList {
    /// Blocks in no particular order.
    pub blocks: Vec<BlockView>,
    /// Pass it as `after` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
