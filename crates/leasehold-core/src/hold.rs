//! Holds, bookings, blocks and payments: what the state remembers of each.

use crate::{BlockId, BookingId, EventNo, Fence, HoldId, Millis, PoolNo, Reference, SeatNo, Text, Timestamp};

/// Seats and units kept for a buyer who has not paid yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Its id.
    pub id: HoldId,
    /// The number of the log entry that created it.
    pub number: u64,
    /// The event.
    pub event: EventNo,
    /// Where it stands in its life.
    pub state: HoldState,
    /// Grows with every change.
    pub version: u32,
    /// How often it was extended.
    pub extends: u32,
    /// What it keeps, or kept.
    pub items: Box<[Item]>,
    /// For whom.
    pub holder: Option<Reference>,
    /// When it was granted.
    pub created_at: Timestamp,
    /// When it ends unless a payment is in progress. At this instant it is over.
    pub expires_at: Timestamp,
    /// No extension goes past this instant.
    pub hard_deadline: Timestamp,
    /// No payment goes past this instant.
    pub life_end: Timestamp,
    /// When it ended; [`Timestamp::NEVER`] while it lives.
    pub ended_at: Timestamp,
    /// The payment in progress, or the last one.
    pub payment: Option<Box<PaymentPhase>>,
    /// The sale it became.
    pub booking: Option<BookingId>,
}

/// Where a hold stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldState {
    /// Kept until `expires_at`.
    Held,
    /// Being paid for, kept until the payment's deadline.
    Confirming,
    /// Sold.
    Confirmed,
    /// Given back by its holder.
    Released,
    /// Its time ran out.
    Expired,
    /// Taken away by the operator.
    Revoked,
}

/// How a hold ended: all that changes of it when it ends without a sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldEnd {
    /// Released, expired or revoked.
    pub state: HoldState,
    /// The hold's last version.
    pub version: u32,
    /// When.
    pub ended_at: Timestamp,
}

/// A payment of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaymentPhase {
    /// The payment's reference.
    pub reference: Reference,
    /// When it is late.
    pub deadline: Timestamp,
    /// How much of the hold's life was left when it began.
    pub remaining: Millis,
    /// Whether the hold stays at the deadline instead of expiring.
    pub kept: bool,
}

/// A seat or units of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// A seat, with the fence under which it was granted.
    Seat {
        /// The seat.
        seat: SeatNo,
        /// The fence.
        fence: Fence,
    },
    /// Units of a pool.
    Pool {
        /// The pool.
        pool: PoolNo,
        /// How many.
        quantity: u32,
    },
}

/// A sale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// Its id.
    pub id: BookingId,
    /// The number of the log entry that created it.
    pub number: u64,
    /// The event.
    pub event: EventNo,
    /// The hold it came from.
    pub hold: HoldId,
    /// Whether it still stands.
    pub state: BookingState,
    /// What was sold.
    pub items: Box<[Item]>,
    /// To whom.
    pub holder: Option<Reference>,
    /// The payment.
    pub payment_ref: Option<Reference>,
    /// The seller's order.
    pub order_ref: Option<Reference>,
    /// Whether the payment came after the hold had ended.
    pub revived: bool,
    /// When it was sold.
    pub booked_at: Timestamp,
    /// When it was cancelled; [`Timestamp::NEVER`] while it stands.
    pub cancelled_at: Timestamp,
}

/// Whether a sale still stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BookingState {
    /// Sold.
    Booked,
    /// Undone.
    Cancelled,
}

/// Seats and units kept back from sale by the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its id.
    pub id: BlockId,
    /// The number of the log entry that created it.
    pub number: u64,
    /// The event.
    pub event: EventNo,
    /// What is kept back.
    pub items: Box<[Item]>,
    /// Why.
    pub reason: Option<Text>,
    /// When.
    pub created_at: Timestamp,
}

/// What became of a payment reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    /// The number of the log entry that first named it.
    pub number: u64,
    /// The event.
    pub event: EventNo,
    /// The reference, unique in its event.
    pub reference: Reference,
    /// The hold it is for.
    pub hold: HoldId,
    /// What became of it.
    pub state: PaymentState,
}

/// What became of a payment reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentState {
    /// The buyer is paying.
    Pending,
    /// It became a sale.
    Booked,
    /// It came too late: the money must be given back.
    RefundDue,
    /// No money moved as far as is known: declined, given up or timed out.
    Void,
}

impl HoldState {
    /// The state's name, for programs and people.
    pub fn as_str(self) -> &'static str {
        match self {
            HoldState::Held => "held",
            HoldState::Confirming => "confirming",
            HoldState::Confirmed => "confirmed",
            HoldState::Released => "released",
            HoldState::Expired => "expired",
            HoldState::Revoked => "revoked",
        }
    }
}

impl Hold {
    /// Whether it still keeps its items at `now`. The end is exclusive.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.live_until()
    }

    /// The hold as it stands at `now`: one that has run out is over, also when nobody has noted that yet.
    pub fn at(mut self, now: Timestamp) -> Self {
        if self.keeps_items() && !self.is_live(now) {
            self.ended_at = self.live_until();
            self.state = HoldState::Expired;
            self.version += 1;
        }
        self
    }

    /// The instant at which it stops keeping its items by itself; zero when it already has.
    pub fn live_until(&self) -> Timestamp {
        match self.state {
            HoldState::Held => self.expires_at,
            HoldState::Confirming => match &self.payment {
                Some(payment) if payment.kept => Timestamp::NEVER,
                Some(payment) => payment.deadline,
                None => self.expires_at,
            },
            HoldState::Confirmed | HoldState::Released | HoldState::Expired | HoldState::Revoked => {
                Timestamp::default()
            }
        }
    }

    /// The deadline of its payment, if it is being paid for and stays when that is late.
    pub fn kept_until(&self) -> Option<Timestamp> {
        let paying = self.payment.as_ref().filter(|_| self.state == HoldState::Confirming);
        paying.filter(|payment| payment.kept).map(|payment| payment.deadline)
    }

    /// Whether it is in a state that keeps its items, in time or not.
    pub fn keeps_items(&self) -> bool {
        matches!(self.state, HoldState::Held | HoldState::Confirming)
    }
}

/// Seats and units in a list of items, together.
pub(crate) fn units(items: &[Item]) -> i64 {
    items.iter().map(|item| i64::from(item.units())).sum()
}

impl Item {
    /// 1 for a seat, the quantity for units of a pool.
    pub fn units(&self) -> u32 {
        match self {
            Item::Seat { .. } => 1,
            Item::Pool { quantity, .. } => *quantity,
        }
    }
}
