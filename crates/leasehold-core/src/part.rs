//! Part of a state: enough of one event to carry out some commands, with the counts of the whole.
//!
//! A store with many servers cannot keep everything in the memory of one of them. It loads what a few commands
//! are about, applies them with the same rules, and writes back what they changed. What must be there:
//! - every hold, booking, block and payment reference that a command names, with all payments of those holds;
//! - every hold of the event whose time has run out, so that nothing is sold out because of it;
//! - every seat that a command names, or all of them if it lets the rules choose;
//! - all pools, the counts of seats, and the units of every holder concerned;
//! - the count of payments in progress, if a command begins one and the event limits them.

use crate::{
    BlockSlot, BookingSlot, BookingState, Epoch, Event, EventNo, Fence, HoldSlot, HoldState, Item, Owner,
    PoolCounts, PoolNo, Reference, SeatNo, State, StatusCounts,
};

/// The owner of a seat that belongs to somebody of whom the part knows nothing else.
const SOMEBODY: Owner = Owner::Block(BlockSlot(u32::MAX));

impl State {
    /// A part of a state: its only event, with nothing else loaded yet. Its number must be 0.
    ///
    /// Log entries are numbered from the event's version on.
    pub fn part(epoch: Epoch, event: Event) -> Self {
        assert_eq!(event.number, EventNo(0), "a part has one event");
        let mut part = Self::with_room(epoch, 0);
        part.load_seq(event.version);
        part.load_event(event);
        part
    }

    /// Gives the loaded holds, bookings and blocks their seats, and schedules what ends by itself or is forgotten.
    ///
    /// Counts are left alone: they were loaded.
    pub fn finish_loading_part(&mut self) {
        let holds: Vec<HoldSlot> = self.holds().map(|(slot, _)| slot).collect();
        let (mut ended, mut paying) = (Vec::new(), 0);
        for slot in holds {
            let hold = self.hold_at(slot).expect("just listed");
            if !hold.keeps_items() {
                ended.push((hold.ended_at, hold.number, slot));
                continue;
            }
            paying += u32::from(hold.state == HoldState::Confirming);
            let items = hold.items.clone();
            self.own_seats(&items, Owner::Hold(slot));
            self.schedule(slot);
        }
        // Those that were loaded are among those that were counted, if any were.
        let event = self.event_mut(EventNo(0));
        event.set_payments_in_flight(event.payments_in_flight().max(paying));
        let bookings = self.bookings().filter(|(_, booking)| booking.state == BookingState::Booked);
        let bookings: Vec<(BookingSlot, Box<[Item]>)> =
            bookings.map(|(slot, booking)| (slot, booking.items.clone())).collect();
        for (slot, items) in bookings {
            self.own_seats(&items, Owner::Booking(slot));
        }
        let blocks: Vec<(BlockSlot, Box<[Item]>)> =
            self.blocks().map(|(slot, block)| (slot, block.items.clone())).collect();
        for (slot, items) in blocks {
            self.own_seats(&items, Owner::Block(slot));
        }
        ended.sort_unstable();
        for (_, _, slot) in ended {
            self.remember_ended(slot);
        }
    }

    fn own_seats(&mut self, items: &[Item], owner: Owner) {
        let event = self.event_mut(EventNo(0));
        for item in items {
            if let Item::Seat { seat, fence } = *item {
                let fence = fence.max(event.seat(seat).fence);
                event.load_seat(seat, fence, owner);
            }
        }
    }
}

impl Event {
    /// Loading a part: a seat that belongs to somebody, or is free, with its fence. No count changes.
    pub fn load_part_seat(&mut self, seat: SeatNo, fence: Fence, is_free: bool) {
        self.load_seat(seat, fence, if is_free { Owner::Free } else { SOMEBODY });
    }

    /// Loading a part: how many seats of the whole stand how.
    pub fn load_part_counts(&mut self, counts: StatusCounts) {
        self.set_counts(counts);
    }

    /// Loading a part: how a pool of the whole stands.
    pub fn load_part_pool(&mut self, pool: PoolNo, counts: PoolCounts) {
        let known = self.pool_mut(pool);
        known.capacity = counts.capacity;
        known.held = counts.held;
        known.sold = counts.sold;
        known.blocked = counts.blocked;
    }

    /// Loading a part: how many payments of the whole are in progress.
    pub fn load_part_payments(&mut self, in_flight: u32) {
        self.set_payments_in_flight(in_flight);
    }

    /// Loading a part: the units of a holder, where the policy limits them.
    pub fn load_part_units(&mut self, holder: &Reference, units: u64) {
        self.count_holder(Some(holder), i64::try_from(units).unwrap_or(i64::MAX));
    }
}
