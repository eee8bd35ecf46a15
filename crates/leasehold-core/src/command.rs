//! What callers ask for, and what they are told.

use std::sync::Arc;

use crate::{
    BadPolicy, Block, BlockId, Booking, BookingId, EventNo, Hold, HoldId, HoldState, Layout, Millis, Name,
    Policy, PolicyPatch, PoolNo, Reference, SeatNo, SectionNo, Text,
};

/// Something to be done, if the rules allow it.
#[derive(Debug, Clone)]
pub enum Command {
    /// Begin to sell something.
    CreateEvent(CreateEvent),
    /// Change the rules or capacities of an event, open or close it.
    UpdateEvent(UpdateEvent),
    /// Keep items for a buyer: all or none.
    CreateHold(CreateHold),
    /// Lengthen a hold, give it more items or fewer: all of it or nothing.
    AmendHold(AmendHold),
    /// Give a hold back.
    ReleaseHold(HoldId),
    /// Take a hold away, as an operator, for this reason.
    RevokeHold(HoldId, Option<Text>),
    /// The buyer goes to pay: the hold's time stands still until the payment's deadline.
    BeginPayment(BeginPayment),
    /// The payment with this reference failed.
    PaymentFailed(HoldId, Reference),
    /// Turn a hold into a sale.
    ConfirmHold(ConfirmHold),
    /// Undo a sale: its items are free at once.
    CancelBooking(CancelBooking),
    /// Keep items back from sale.
    CreateBlock(CreateBlock),
    /// Put blocked items on sale again.
    RemoveBlock(EventNo, BlockId),
}

/// See [`Command::CreateEvent`].
#[derive(Debug, Clone)]
pub struct CreateEvent {
    /// The event's id.
    pub id: Name,
    /// Its name for people.
    pub name: Text,
    /// Its seats.
    pub layout: Arc<Layout>,
    /// Its pools with their capacities.
    pub pools: Vec<(Name, u32)>,
    /// Its rules.
    pub policy: Policy,
}

/// See [`Command::UpdateEvent`].
#[derive(Debug, Clone)]
pub struct UpdateEvent {
    /// The event.
    pub event: EventNo,
    /// What to change.
    pub patch: EventPatch,
}

/// Changes to an event, all of them or none.
#[derive(Debug, Clone, Default)]
pub struct EventPatch {
    /// Rules to change.
    pub policy: Option<PolicyPatch>,
    /// New capacities.
    pub capacities: Vec<(PoolNo, u32)>,
    /// Open or close.
    pub open: Option<bool>,
}

/// See [`Command::CreateHold`].
#[derive(Debug, Clone)]
pub struct CreateHold {
    /// The event.
    pub event: EventNo,
    /// The new hold's id, never used before.
    pub id: HoldId,
    /// What to keep.
    pub items: Vec<ItemRequest>,
    /// For whom.
    pub holder: Option<Reference>,
    /// How long; the event's policy when absent.
    pub ttl: Option<Millis>,
}

/// One thing asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemRequest {
    /// This seat.
    Seat(SeatNo),
    /// Units of this pool.
    Pool(PoolNo, u32),
    /// Free seats next to each other, chosen here.
    Best {
        /// How many.
        count: u32,
        /// Only in this section.
        section: Option<SectionNo>,
    },
}

/// See [`Command::AmendHold`].
#[derive(Debug, Clone)]
pub struct AmendHold {
    /// The hold.
    pub hold: HoldId,
    /// It is to end this long from now.
    pub extend: Option<Millis>,
    /// Items to add.
    pub add: Vec<ItemRequest>,
    /// Items to give back.
    pub remove: Vec<ItemRequest>,
    /// The version the caller has seen.
    pub version: Option<u32>,
}

/// See [`Command::BeginPayment`].
#[derive(Debug, Clone)]
pub struct BeginPayment {
    /// The hold.
    pub hold: HoldId,
    /// The payment.
    pub reference: Reference,
    /// How long it may take; the event's policy when absent.
    pub max_wait: Option<Millis>,
}

/// See [`Command::ConfirmHold`].
#[derive(Debug, Clone)]
pub struct ConfirmHold {
    /// The hold.
    pub hold: HoldId,
    /// The new booking's id, never used before.
    pub booking: BookingId,
    /// The payment, if there is one.
    pub payment_ref: Option<Reference>,
    /// The seller's order.
    pub order_ref: Option<Reference>,
    /// Only these of the held items; all of them when absent.
    pub items: Option<Vec<ItemRequest>>,
}

/// See [`Command::CancelBooking`].
#[derive(Debug, Clone)]
pub struct CancelBooking {
    /// The booking.
    pub booking: BookingId,
}

/// See [`Command::CreateBlock`].
#[derive(Debug, Clone)]
pub struct CreateBlock {
    /// The event.
    pub event: EventNo,
    /// The new block's id, never used before.
    pub id: BlockId,
    /// What to keep back: seats and pools only.
    pub items: Vec<ItemRequest>,
    /// Why.
    pub reason: Option<Text>,
}

/// What came of a command that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The event stands as its number now shows it.
    Event(EventNo),
    /// The hold as it now stands.
    Hold(Hold),
    /// The booking as it now stands.
    Booking(Booking),
    /// The block as it now stands.
    Block(Block),
    /// The block is gone from this event.
    BlockGone(EventNo),
    /// The payment cannot become a sale any more: it was noted that it must be given back.
    RefundDue(EventNo, Reference),
}

/// Why a command was not carried out. Nothing changed, but for holds that were over anyway.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such event, hold, booking or block.
    #[error("not found")]
    NotFound,
    /// These seats belong to someone else.
    #[error("taken")]
    SeatsTaken(Vec<SeatNo>),
    /// Fewer units are left than asked for.
    #[error("only {available} units are left")]
    PoolShort {
        /// The pool.
        pool: PoolNo,
        /// Units free.
        available: u32,
        /// Units that are held and may come back.
        returning: u32,
    },
    /// No such number of seats is free together.
    #[error("no such number of seats is free together")]
    NotTogether {
        /// Seats free.
        available: u32,
        /// Seats that are held and may come back.
        returning: u32,
    },
    /// Holds that are over are still being ended, and what was asked for may be among what they give back.
    ///
    /// To be asked again at once, after [`State::expire_due`](crate::State::expire_due).
    #[error("holds that are over are still being ended")]
    NotYet,
    /// The event sells nothing new.
    #[error("the event is closed")]
    EventClosed,
    /// The event's id is in use.
    #[error("the event exists")]
    EventExists,
    /// The hold is not known any more, so this payment for it cannot become a sale.
    ///
    /// A caller who has not proved that the hold was once issued to it must be told [`Refusal::NotFound`].
    #[error("the hold is not known any more")]
    HoldForgotten(Reference),
    /// The hold is over.
    #[error("the hold is over")]
    HoldOver(HoldState),
    /// The hold is in a state that does not allow this.
    #[error("the hold is {0:?}")]
    HoldIs(HoldState),
    /// The hold was sold, and the sale was cancelled: nothing of it stands any more.
    #[error("the sale was cancelled")]
    SaleCancelled(BookingId),
    /// The hold cannot be extended further.
    #[error("the hold cannot be extended further")]
    ExtendCap,
    /// The hold has another version.
    #[error("the hold has version {0}")]
    VersionMismatch(u32),
    /// The holder would have more than the event allows.
    #[error("the holder has {has} of at most {limit}")]
    HolderLimit {
        /// Units it has.
        has: u64,
        /// Units it may have.
        limit: u32,
    },
    /// The pool's capacity cannot fall so low.
    #[error("{in_use} units are in use")]
    CapacityInUse {
        /// The pool.
        pool: PoolNo,
        /// Units in use.
        in_use: u32,
    },
    /// The payment reference belongs to another hold.
    #[error("the payment belongs to another hold")]
    PaymentRefUsed,
    /// The hold has had as many payments as it may.
    #[error("the hold has had as many payments as it may")]
    PaymentCap,
    /// As many payments of the event are in progress as it allows at a time.
    #[error("as many payments are in progress as the event allows at a time")]
    PaymentsBusy,
    /// The event's rules would contradict themselves.
    #[error("{0}")]
    BadPolicy(BadPolicy),
    /// The request contradicts itself or a limit.
    #[error("{0}")]
    Invalid(&'static str),
}
