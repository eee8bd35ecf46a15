//! What some commands need to be decided: the arguments of `load_v1`.

use leasehold_core::{BlockId, BookingId, Command, EventNo, HoldId, ItemRequest, Reference};
use uuid::Uuid;

use crate::IdempotencyKey;

/// Lists of what is named, as `sql/0002_load.sql` takes them.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    pub(crate) events: Vec<i32>,
    pub(crate) holds: Vec<Uuid>,
    pub(crate) bookings: Vec<Uuid>,
    pub(crate) blocks: Vec<Uuid>,
    pub(crate) seat_events: Vec<i32>,
    pub(crate) seat_nos: Vec<i32>,
    pub(crate) seat_holds: Vec<Uuid>,
    pub(crate) seat_hold_nos: Vec<i32>,
    pub(crate) late_holds: Vec<Uuid>,
    pub(crate) all_seats: Vec<i32>,
    pub(crate) all_seats_of_holds: Vec<Uuid>,
    pub(crate) all_holds: Vec<i32>,
    pub(crate) payment_holds: Vec<Uuid>,
    pub(crate) payment_refs: Vec<String>,
    pub(crate) holder_events: Vec<i32>,
    pub(crate) holder_names: Vec<String>,
    pub(crate) scopes: Vec<Uuid>,
    /// Holds whose payment begins, and events whose rules may change: for `sql/paying.sql`.
    pub(crate) begun_holds: Vec<Uuid>,
    pub(crate) updated_events: Vec<i32>,
}

impl Wants {
    /// Nothing but what is over in this event.
    pub(crate) fn due_of(event: i32) -> Self {
        Self { events: vec![event], ..Self::default() }
    }

    /// What one command needs.
    pub(crate) fn of(command: &Command) -> Self {
        let mut wants = Self::default();
        wants.add(command);
        wants
    }

    /// Whether it is about everything that an event has.
    pub(crate) fn is_large(&self) -> bool {
        !self.all_holds.is_empty()
    }

    pub(crate) fn add_key(&mut self, key: &IdempotencyKey) {
        self.scopes.push(Uuid::from_u128(key.scope));
    }

    pub(crate) fn add(&mut self, command: &Command) {
        match command {
            Command::CreateEvent(_) => unreachable!("events are created without loading anything"),
            Command::UpdateEvent(update) => {
                self.events.push(number(update.event));
                self.updated_events.push(number(update.event));
                if update.patch.open == Some(false) {
                    self.all_holds.push(number(update.event));
                }
            }
            Command::CreateHold(create) => {
                self.events.push(number(create.event));
                // The id of a hold that was made by an attempt whose answer was lost.
                self.holds.push(hold_id(create.id));
                self.seats(create.event, &create.items);
                if let Some(holder) = &create.holder {
                    self.holder_events.push(number(create.event));
                    self.holder_names.push(holder.as_str().to_owned());
                }
            }
            Command::AmendHold(amend) => {
                self.holds.push(hold_id(amend.hold));
                for item in &amend.add {
                    match *item {
                        ItemRequest::Seat(seat) => {
                            self.seat_holds.push(hold_id(amend.hold));
                            self.seat_hold_nos.push(seat.0.cast_signed());
                        }
                        ItemRequest::Pool(..) => {}
                        ItemRequest::Best { .. } => self.all_seats_of_holds.push(hold_id(amend.hold)),
                    }
                }
            }
            Command::ReleaseHold(hold) | Command::RevokeHold(hold, _) => self.holds.push(hold_id(*hold)),
            Command::BeginPayment(begin) => {
                self.begun_holds.push(hold_id(begin.hold));
                self.payment(begin.hold, &begin.reference);
            }
            Command::PaymentFailed(hold, reference) => self.payment(*hold, reference),
            Command::ConfirmHold(confirm) => {
                self.holds.push(hold_id(confirm.hold));
                // A payment that comes late wants the hold's own seats, whoever has them now.
                if let Some(reference) = &confirm.payment_ref {
                    self.late_holds.push(hold_id(confirm.hold));
                    self.payment(confirm.hold, reference);
                }
            }
            Command::CancelBooking(cancel) => self.bookings.push(booking_id(cancel.booking)),
            Command::CreateBlock(create) => {
                self.events.push(number(create.event));
                self.seats(create.event, &create.items);
            }
            Command::RemoveBlock(event, block) => {
                self.events.push(number(*event));
                self.blocks.push(block_id(*block));
            }
        }
    }

    fn seats(&mut self, event: EventNo, items: &[ItemRequest]) {
        for item in items {
            match *item {
                ItemRequest::Seat(seat) => {
                    self.seat_events.push(number(event));
                    self.seat_nos.push(seat.0.cast_signed());
                }
                ItemRequest::Pool(..) => {}
                ItemRequest::Best { .. } => self.all_seats.push(number(event)),
            }
        }
    }

    fn payment(&mut self, hold: HoldId, reference: &Reference) {
        self.holds.push(hold_id(hold));
        self.payment_holds.push(hold_id(hold));
        self.payment_refs.push(reference.as_str().to_owned());
    }
}

pub(crate) fn number(event: EventNo) -> i32 {
    event.0.cast_signed()
}

pub(crate) fn hold_id(hold: HoldId) -> Uuid {
    Uuid::from_u128(hold.as_raw())
}

pub(crate) fn booking_id(booking: BookingId) -> Uuid {
    Uuid::from_u128(booking.as_raw())
}

pub(crate) fn block_id(block: BlockId) -> Uuid {
    Uuid::from_u128(block.as_raw())
}
