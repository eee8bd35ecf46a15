//! Asking an event's log: what happened to a seat, a hold, a holder's holds or an order.

use std::sync::Arc;

use leasehold_core::{Block, BlockId, Booking, BookingId, Hold, HoldId, Reference, SeatNo};

use crate::Change;

/// Which entries are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogQuery {
    /// What they are about.
    pub about: About,
    /// Only entries before this version of the event.
    pub before: Option<u64>,
    /// At most this many.
    pub limit: usize,
}

/// What entries are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// Anything.
    Everything,
    /// A seat, and the holds that had it.
    Seat(SeatNo),
    /// A hold, and the booking it became.
    Hold(HoldId),
    /// The holds of a holder.
    Holder(Reference),
    /// The hold behind an order, or behind a payment.
    Order(Reference),
}

/// Entries, and how the things they are about stand now.
#[derive(Debug, Clone, Default)]
pub struct LogPage {
    /// The entries, newest first.
    pub entries: Vec<Arc<Change>>,
    /// The holds of the entries that are still remembered.
    pub holds: Vec<Hold>,
    /// The bookings they became.
    pub bookings: Vec<Booking>,
    /// The block on the seat that was asked for.
    pub blocks: Vec<Block>,
    /// Who has the seat that was asked for.
    pub owner: Option<SeatOwner>,
    /// The oldest version that was looked at; none when nothing was.
    pub looked_back_to: Option<u64>,
    /// Whether there is more to look at before that.
    pub more: bool,
}

/// Who has a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeatOwner {
    /// A buyer who has not paid yet.
    Hold(HoldId),
    /// A buyer who has.
    Booking(BookingId),
    /// The operator.
    Block(BlockId),
}
