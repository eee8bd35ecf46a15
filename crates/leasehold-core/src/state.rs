//! Everything that is known: events, holds, bookings, blocks and payments, with the ways to find them.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use hashbrown::HashMap;

use crate::hold::units;
use crate::limits::{DECLINED_HOLDS_AGE_MAX, DECLINED_HOLDS_MAX, ENDED_HOLDS_AGE_MAX, ENDED_HOLDS_MAX};
use crate::payments::Payments;
use crate::table::Table;
use crate::{
    Block, BlockId, BlockSlot, Booking, BookingId, BookingSlot, BookingState, Changes, Entry, Epoch, Event,
    EventNo, Hold, HoldEnd, HoldId, HoldSlot, HoldState, Item, Kind, Millis, Name, Owner, Payment,
    PaymentState, PoolCounts, Reference, Timestamp, Touched,
};

/// Holds for which there is room from the start: making room later moves all their ids at once.
const HOLDS_AT_START: usize = 1 << 20;

/// How many ended holds are remembered, and for how long: those without a payment, and those with void ones.
const RETENTIONS: [(usize, Millis); 2] =
    [(ENDED_HOLDS_MAX, ENDED_HOLDS_AGE_MAX), (DECLINED_HOLDS_MAX, DECLINED_HOLDS_AGE_MAX)];

/// The whole state. Changed by [`State::apply`] and [`State::expire_due`], and by nothing else once it is loaded.
#[derive(Debug, Clone)]
pub struct State {
    pub(crate) epoch: Epoch,
    /// The number of the last log entry.
    seq: u64,
    pub(crate) events: Vec<Event>,
    event_ids: HashMap<Name, EventNo>,
    pub(crate) holds: Table<Hold>,
    pub(crate) bookings: Table<Booking>,
    pub(crate) blocks: Table<Block>,
    pub(crate) payments: Payments,
    /// When each live hold ends by itself, soonest first.
    due: BTreeSet<(Timestamp, HoldSlot)>,
    /// The payment's deadline of each live hold that does not end by itself, soonest first.
    kept: BTreeSet<(Timestamp, HoldSlot)>,
    /// Ended holds that are forgotten some day, in the order they ended: a queue for each of the retentions.
    ended: [VecDeque<HoldSlot>; 2],
}

impl State {
    /// Nothing at all, in this epoch.
    pub fn new(epoch: Epoch) -> Self {
        Self::with_room(epoch, HOLDS_AT_START)
    }

    pub(crate) fn with_room(epoch: Epoch, holds: usize) -> Self {
        Self {
            epoch,
            seq: 0,
            events: Vec::new(),
            event_ids: HashMap::new(),
            holds: Table::with_room(holds),
            bookings: Table::with_room(0),
            blocks: Table::with_room(0),
            payments: Payments::default(),
            due: BTreeSet::new(),
            kept: BTreeSet::new(),
            ended: Default::default(),
        }
    }

    /// The epoch fences are issued in.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The number of the last log entry.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// All events in the order of creation.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// One event.
    pub fn event(&self, event: EventNo) -> Option<&Event> {
        self.events.get(event.0 as usize)
    }

    /// The event with this id.
    pub fn event_number(&self, id: &Name) -> Option<EventNo> {
        self.event_ids.get(id).copied()
    }

    /// The hold with this id.
    pub fn hold(&self, id: HoldId) -> Option<&Hold> {
        self.hold_slot(id).and_then(|slot| self.hold_at(slot))
    }

    /// Where the hold with this id stands.
    pub fn hold_slot(&self, id: HoldId) -> Option<HoldSlot> {
        self.holds.find(id.as_raw()).map(HoldSlot)
    }

    /// The hold in this slot.
    pub fn hold_at(&self, slot: HoldSlot) -> Option<&Hold> {
        self.holds.get(slot.0)
    }

    /// All holds, in no order.
    pub fn holds(&self) -> impl Iterator<Item = (HoldSlot, &Hold)> {
        self.holds.iter().map(|(slot, hold)| (HoldSlot(slot), hold))
    }

    /// The holds in a range of slots, in order. A hold stays in its slot for as long as it is remembered.
    pub fn holds_in(&self, slots: Range<u32>) -> impl Iterator<Item = (HoldSlot, &Hold)> {
        self.holds.range(slots).map(|(slot, hold)| (HoldSlot(slot), hold))
    }

    /// The blocks in a range of slots, in order, each staying in its slot.
    pub fn blocks_in(&self, slots: Range<u32>) -> impl Iterator<Item = (BlockSlot, &Block)> {
        self.blocks.range(slots).map(|(slot, block)| (BlockSlot(slot), block))
    }

    /// How many slots there are for blocks, vacant ones included.
    pub fn block_slots(&self) -> u32 {
        self.blocks.length()
    }

    /// How many slots there are for holds, vacant ones included.
    pub fn hold_slots(&self) -> u32 {
        self.holds.length()
    }

    /// The booking with this id.
    pub fn booking(&self, id: BookingId) -> Option<&Booking> {
        self.bookings.find(id.as_raw()).and_then(|slot| self.bookings.get(slot))
    }

    /// The booking in this slot.
    pub fn booking_at(&self, slot: BookingSlot) -> Option<&Booking> {
        self.bookings.get(slot.0)
    }

    /// All bookings, in no order.
    pub fn bookings(&self) -> impl Iterator<Item = (BookingSlot, &Booking)> {
        self.bookings.iter().map(|(slot, booking)| (BookingSlot(slot), booking))
    }

    /// The block with this id.
    pub fn block(&self, id: BlockId) -> Option<&Block> {
        self.blocks.find(id.as_raw()).and_then(|slot| self.blocks.get(slot))
    }

    /// The block in this slot.
    pub fn block_at(&self, slot: BlockSlot) -> Option<&Block> {
        self.blocks.get(slot.0)
    }

    /// All blocks, in no order.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockSlot, &Block)> {
        self.blocks.iter().map(|(slot, block)| (BlockSlot(slot), block))
    }

    /// What is known of a payment.
    pub fn payment(&self, event: EventNo, reference: &Reference) -> Option<&Payment> {
        self.payments.get(event, reference)
    }

    /// All payments, in no order.
    pub fn payments(&self) -> impl Iterator<Item = &Payment> {
        self.payments.iter()
    }

    /// The payments of a hold.
    pub fn payments_of(&self, hold: &Hold) -> impl Iterator<Item = &Payment> {
        self.payments.of(hold.event, hold.id)
    }

    /// When the next hold ends by itself.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// How many holds wait for an operator: their payments are late, and they are kept all the same.
    pub fn overdue(&self, now: Timestamp) -> usize {
        self.kept.range(..=(now, HoldSlot(u32::MAX))).count()
    }

    pub(crate) fn kept_holds(&self) -> &BTreeSet<(Timestamp, HoldSlot)> {
        &self.kept
    }

    pub(crate) fn due_holds(&self) -> &BTreeSet<(Timestamp, HoldSlot)> {
        &self.due
    }

    pub(crate) fn event_mut(&mut self, event: EventNo) -> &mut Event {
        &mut self.events[event.0 as usize]
    }

    pub(crate) fn hold_mut(&mut self, slot: HoldSlot) -> &mut Hold {
        self.holds.get_mut(slot.0).expect("the slot was found in this command")
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.seq + 1
    }

    /// Writes the log entry for what was touched since `from`.
    pub(crate) fn log(
        &mut self,
        changes: &mut Changes,
        from: usize,
        event: EventNo,
        at: Timestamp,
        kind: Kind,
    ) {
        self.seq += 1;
        let seq = self.seq;
        let this = self.event_mut(event);
        this.version += 1;
        let version = this.version;
        let touched = from..changes.touched.len();
        changes.entries.push(Entry { seq, event, version, at, kind, touched });
    }

    pub(crate) fn schedule(&mut self, slot: HoldSlot) {
        let hold = self.hold_at(slot).expect("the hold is there");
        let (until, kept_until) = (hold.live_until(), hold.kept_until());
        if until != Timestamp::NEVER {
            self.due.insert((until, slot));
        }
        if let Some(deadline) = kept_until {
            self.kept.insert((deadline, slot));
        }
    }

    pub(crate) fn unschedule(&mut self, slot: HoldSlot) {
        let hold = self.hold_at(slot).expect("the hold is there");
        let (until, kept_until) = (hold.live_until(), hold.kept_until());
        self.due.remove(&(until, slot));
        if let Some(deadline) = kept_until {
            self.kept.remove(&(deadline, slot));
        }
    }

    /// Notes that a hold ended without a sale.
    pub(crate) fn remember_ended(&mut self, slot: HoldSlot) {
        let hold = self.hold_at(slot).expect("the hold is there");
        let queue = self.retention_of(hold);
        self.ended[queue].push_back(slot);
    }

    fn retention_of(&self, hold: &Hold) -> usize {
        usize::from(self.payments.count_of(hold.id) > 0)
    }

    /// Whether money has come of the hold, or must be given back: such a hold is kept for good.
    fn is_kept_for_good(&self, hold: &Hold) -> bool {
        hold.booking.is_some() || self.payments_of(hold).any(|payment| payment.state != PaymentState::Void)
    }

    /// Forgets up to `count` of the oldest ended holds beyond each of the limits, with their payments, which are void.
    ///
    /// To be called between commands: no command forgets a hold, so what it touched is still there after it.
    pub fn forget_ended(&mut self, now: Timestamp, count: usize, changes: &mut Changes) {
        for (queue, (count_max, age_max)) in RETENTIONS.into_iter().enumerate() {
            for _ in 0..count {
                let Some(&oldest) = self.ended[queue].front() else { break };
                let Some(hold) = self.hold_at(oldest) else { unreachable!("ended holds leave only here") };
                let kept = self.is_kept_for_good(hold);
                let too_old = now >= hold.ended_at.after(age_max);
                if !kept && !too_old && self.ended[queue].len() <= count_max {
                    break;
                }
                self.ended[queue].pop_front();
                if !kept {
                    self.forget(oldest, changes);
                }
            }
        }
    }

    fn forget(&mut self, slot: HoldSlot, changes: &mut Changes) {
        let hold = self.holds.remove(slot.0).expect("the hold is there");
        changes.forgotten.push(Touched::Hold(slot));
        let references = self.payments.forget(hold.event, hold.id);
        changes.forgotten.extend(references.into_iter().map(|one| Touched::Payment(hold.event, one)));
    }
}

/// Loading: what was saved is put back as it was, in any order, then [`State::finish_loading`] ties it together.
impl State {
    /// Puts back the number of the last log entry.
    pub fn load_seq(&mut self, seq: u64) {
        self.seq = seq;
    }

    /// Puts an event back, everything free; events come in the order of their numbers.
    pub fn load_event(&mut self, event: Event) {
        let place = event.number.0 as usize;
        match self.events.get_mut(place) {
            Some(known) => *known = event,
            None => {
                assert_eq!(place, self.events.len(), "events are loaded in order");
                self.event_ids.insert(event.id.clone(), event.number);
                self.events.push(event);
            }
        }
    }

    /// An event that is being loaded.
    pub fn loading_event(&mut self, event: EventNo) -> Option<&mut Event> {
        self.events.get_mut(event.0 as usize)
    }

    /// Puts a hold back in its slot, or a newer image of it, or the slot's next hold.
    pub fn load_hold(&mut self, slot: HoldSlot, hold: Hold) {
        self.holds.put_at(slot.0, hold);
    }

    /// Puts a booking back, or a newer image of it.
    pub fn load_booking(&mut self, slot: BookingSlot, booking: Booking) {
        self.bookings.put_at(slot.0, booking);
    }

    /// Puts a block back.
    pub fn load_block(&mut self, slot: BlockSlot, block: Block) {
        self.blocks.put_at(slot.0, block);
    }

    /// Notes how a hold ended, if its slot still has it.
    pub fn load_hold_end(&mut self, slot: HoldSlot, id: HoldId, end: HoldEnd) {
        if let Some(hold) = self.holds.get_mut(slot.0).filter(|hold| hold.id == id) {
            (hold.state, hold.version, hold.ended_at) = (end.state, end.version, end.ended_at);
        }
    }

    /// Removes a block that is gone.
    pub fn unload_block(&mut self, slot: BlockSlot) {
        self.blocks.remove(slot.0);
    }

    /// Puts a payment back, or a newer image of it.
    pub fn load_payment(&mut self, payment: Payment) {
        self.payments.put(payment);
    }

    /// Gives every item to its owner, counts, and schedules what ends by itself.
    ///
    /// Gives back the payments whose holds were forgotten before they were; they are dropped. Says what
    /// contradicts itself: an item with two owners, or more units than there are.
    pub fn finish_loading(&mut self) -> Result<Vec<Touched>, String> {
        self.holds.find_vacant();
        self.bookings.find_vacant();
        self.blocks.find_vacant();
        let holds: Vec<HoldSlot> =
            self.holds().filter(|(_, hold)| hold.keeps_items()).map(|(slot, _)| slot).collect();
        for slot in holds {
            let hold = self.hold_at(slot).expect("just listed");
            let (event, items, holder) = (hold.event, hold.items.clone(), hold.holder.clone());
            let (what, is_paying) = (hold.id.to_string(), hold.state == HoldState::Confirming);
            self.schedule(slot);
            let event =
                self.events.get_mut(event.0 as usize).ok_or_else(|| format!("{what} has no event"))?;
            own(event, &items, Owner::Hold(slot), &what, |pool, quantity| pool.held += quantity)?;
            event.count_holder(holder.as_ref(), units(&items));
            if is_paying {
                event.count_payment_begun();
            }
        }
        let bookings: Vec<(BookingSlot, Booking)> = self
            .bookings()
            .filter(|(_, booking)| booking.state == BookingState::Booked)
            .map(|(slot, booking)| (slot, booking.clone()))
            .collect();
        for (slot, booking) in bookings {
            let what = booking.id.to_string();
            let event = self
                .events
                .get_mut(booking.event.0 as usize)
                .ok_or_else(|| format!("{what} has no event"))?;
            own(event, &booking.items, Owner::Booking(slot), &what, |pool, quantity| pool.sold += quantity)?;
            event.count_holder(booking.holder.as_ref(), units(&booking.items));
        }
        let blocks: Vec<(BlockSlot, Block)> =
            self.blocks().map(|(slot, block)| (slot, block.clone())).collect();
        for (slot, block) in blocks {
            let what = block.id.to_string();
            let event =
                self.events.get_mut(block.event.0 as usize).ok_or_else(|| format!("{what} has no event"))?;
            own(event, &block.items, Owner::Block(slot), &what, |pool, quantity| pool.blocked += quantity)?;
        }
        let dropped = self.drop_payments_without_hold()?;
        let over = self.holds().filter(|(_, hold)| !hold.keeps_items() && !self.is_kept_for_good(hold));
        let mut ended: Vec<_> =
            over.map(|(slot, hold)| (hold.ended_at, hold.number, slot, self.retention_of(hold))).collect();
        ended.sort_unstable();
        for (_, _, slot, queue) in ended {
            self.ended[queue].push_back(slot);
        }
        Ok(dropped)
    }

    fn drop_payments_without_hold(&mut self) -> Result<Vec<Touched>, String> {
        let lost = self.payments().filter(|payment| self.hold_slot(payment.hold).is_none());
        let lost: Vec<Payment> = lost.cloned().collect();
        for payment in &lost {
            if payment.state != PaymentState::Void {
                return Err(format!("payment {} has no hold", payment.reference));
            }
            self.payments.forget(payment.event, payment.hold);
        }
        Ok(lost.into_iter().map(|payment| Touched::Payment(payment.event, payment.reference)).collect())
    }
}

fn own(
    event: &mut Event,
    items: &[Item],
    owner: Owner,
    what: &str,
    count: impl Fn(&mut crate::Pool, u32),
) -> Result<(), String> {
    for item in items {
        match *item {
            Item::Seat { seat, fence } => {
                let current = event
                    .seats()
                    .get(seat.0 as usize)
                    .ok_or_else(|| format!("{what} has a seat that is not of its event"))?;
                if current.owner != Owner::Free {
                    return Err(format!(
                        "seat {} has two owners, one is {what}",
                        event.layout.seat_name(seat)
                    ));
                }
                let fence = fence.max(current.fence);
                event.set_fence(seat, fence);
                event.set_owner(seat, owner);
            }
            Item::Pool { pool, quantity } => {
                let known = event.pools().get(pool.0 as usize);
                let known = known.ok_or_else(|| format!("{what} has a pool that is not of its event"))?;
                if known.free() < quantity {
                    return Err(format!("pool {} is oversold, one owner is {what}", known.id));
                }
                count(event.pool_mut(pool), quantity);
            }
        }
    }
    Ok(())
}

impl State {
    /// Adds an event.
    pub(crate) fn add_event(&mut self, event: Event) {
        self.event_ids.insert(event.id.clone(), event.number);
        self.events.push(event);
    }

    /// Notes that these items changed hands, and how they stand now.
    pub(crate) fn touch_items(&self, changes: &mut Changes, event: EventNo, items: &[Item]) {
        let this = self.event(event).expect("items have an event");
        changes.touched.extend(items.iter().map(|item| match *item {
            Item::Seat { seat, .. } => {
                let now = this.seat(seat);
                Touched::Seat(event, seat, now.fence, now.owner.status())
            }
            Item::Pool { pool, .. } => {
                Touched::Pool(event, pool, Box::new(PoolCounts::of(&this.pools()[pool.0 as usize])))
            }
        }));
    }
}
