//! What a command changed: log entries, each with the things it touched.

use std::ops::Range;

use crate::{
    BlockSlot, BookingSlot, EventNo, Fence, HoldSlot, PoolCounts, PoolNo, Reference, SeatNo, SeatStatus,
    Text, Timestamp,
};

/// Everything that commands changed, in order. Reused from batch to batch.
#[derive(Debug, Default)]
pub struct Changes {
    /// The log entries.
    pub entries: Vec<Entry>,
    /// What the entries touched; each entry has its range of it.
    pub touched: Vec<Touched>,
    /// Holds and payments that are now forgotten. No log entry: nothing happened to them.
    pub forgotten: Vec<Touched>,
}

/// One log entry. Entries have consecutive numbers, and so have an event's entries their versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The entry's number.
    pub seq: u64,
    /// The event it is about.
    pub event: EventNo,
    /// The event's version after it.
    pub version: u64,
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub kind: Kind,
    /// Its part of [`Changes::touched`].
    pub touched: Range<usize>,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An event was created.
    EventCreated,
    /// Its rules or capacities changed.
    EventUpdated,
    /// It stopped selling.
    EventClosed,
    /// It sells again.
    EventOpened,
    /// A hold was granted.
    HoldCreated,
    /// A hold lives longer.
    HoldExtended,
    /// A hold has other items.
    HoldAmended,
    /// A hold was given back.
    HoldReleased,
    /// A hold's time ran out.
    HoldExpired,
    /// A hold was taken away.
    HoldRevoked,
    /// The buyer went to pay.
    PaymentBegun,
    /// The payment failed.
    PaymentFailed,
    /// A hold became a sale.
    BookingCreated,
    /// A sale was undone.
    BookingCancelled,
    /// A payment came too late.
    RefundDue,
    /// Seats or units were kept back.
    BlockCreated,
    /// They are on sale again.
    BlockRemoved,
}

/// A thing that an entry changed.
///
/// One command can end a hold and give its seats to the next one, so an entry says itself how seats and pools stood
/// after it. The rest is read from the [`State`](crate::State).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    /// The event itself: policy, state.
    Event(EventNo),
    /// A seat, and how it stood after the entry.
    Seat(EventNo, SeatNo, Fence, SeatStatus),
    /// A pool, and how it stood after the entry. Boxed, because a start may list millions of other things.
    Pool(EventNo, PoolNo, Box<PoolCounts>),
    /// A hold.
    Hold(HoldSlot),
    /// A booking.
    Booking(BookingSlot),
    /// A block.
    Block(BlockSlot),
    /// A block that is gone: where it was.
    BlockGone(BlockSlot),
    /// A payment.
    Payment(EventNo, Reference),
    /// Nothing: why the operator did what the entry is about.
    Reason(Text),
}

const _: () = assert!(size_of::<Touched>() == 24);

impl Changes {
    /// What an entry touched.
    pub fn touched_by(&self, entry: &Entry) -> &[Touched] {
        &self.touched[entry.touched.clone()]
    }

    /// Adds to the last entry why it was made.
    pub(crate) fn explain(&mut self, reason: Option<Text>) {
        if let (Some(reason), Some(entry)) = (reason, self.entries.last_mut()) {
            assert_eq!(entry.touched.end, self.touched.len(), "the last entry has what was touched last");
            self.touched.push(Touched::Reason(reason));
            entry.touched.end += 1;
        }
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.touched.clear();
        self.forgotten.clear();
    }
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 17] = [
        Kind::EventCreated,
        Kind::EventUpdated,
        Kind::EventClosed,
        Kind::EventOpened,
        Kind::HoldCreated,
        Kind::HoldExtended,
        Kind::HoldAmended,
        Kind::HoldReleased,
        Kind::HoldExpired,
        Kind::HoldRevoked,
        Kind::PaymentBegun,
        Kind::PaymentFailed,
        Kind::BookingCreated,
        Kind::BookingCancelled,
        Kind::RefundDue,
        Kind::BlockCreated,
        Kind::BlockRemoved,
    ];

    /// The kind's name in the log and the stream.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::EventCreated => "event.created",
            Kind::EventUpdated => "event.updated",
            Kind::EventClosed => "event.closed",
            Kind::EventOpened => "event.opened",
            Kind::HoldCreated => "hold.created",
            Kind::HoldExtended => "hold.extended",
            Kind::HoldAmended => "hold.amended",
            Kind::HoldReleased => "hold.released",
            Kind::HoldExpired => "hold.expired",
            Kind::HoldRevoked => "hold.revoked",
            Kind::PaymentBegun => "payment.begun",
            Kind::PaymentFailed => "payment.failed",
            Kind::BookingCreated => "booking.created",
            Kind::BookingCancelled => "booking.cancelled",
            Kind::RefundDue => "refund.due",
            Kind::BlockCreated => "block.created",
            Kind::BlockRemoved => "block.removed",
        }
    }
}
