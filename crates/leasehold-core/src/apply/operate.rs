//! What the operator does: events, capacities, blocks.

use std::collections::BTreeSet;

use crate::hold::units;
use crate::limits::{EVENTS_MAX, POOL_CAPACITY_MAX, POOLS_PER_EVENT_MAX, SEATS_PER_BLOCK_MAX};
use crate::{
    Block, BlockId, BlockSlot, BookingState, Changes, CreateBlock, CreateEvent, Event, EventNo, EventState,
    HoldSlot, HoldState, Kind, Owner, Pool, PoolCounts, Refusal, Reply, State, Timestamp, Touched,
    UpdateEvent,
};

impl State {
    pub(super) fn create_event(
        &mut self,
        create: CreateEvent,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        if self.event_number(&create.id).is_some() {
            return Err(Refusal::EventExists);
        }
        if self.events().len() >= EVENTS_MAX || create.pools.len() > POOLS_PER_EVENT_MAX {
            return Err(Refusal::Invalid("there are too many events or pools"));
        }
        let names: BTreeSet<_> = create.pools.iter().map(|(id, _)| id).collect();
        if names.len() != create.pools.len() {
            return Err(Refusal::Invalid("a pool is there twice"));
        }
        if create.pools.iter().any(|(_, capacity)| *capacity > POOL_CAPACITY_MAX) {
            return Err(Refusal::Invalid("a capacity is too large"));
        }
        // A layout that is loaded may have it: files of earlier versions do.
        if create.layout.has_row_twice() {
            return Err(Refusal::Invalid("a row is there twice: its seats must follow each other"));
        }
        if create.layout.seat_count() == 0 && create.pools.is_empty() {
            return Err(Refusal::Invalid("there must be seats or pools"));
        }
        let number = EventNo(self.events().len() as u32);
        let pools = create.pools.into_iter().map(|(id, capacity)| Pool {
            id,
            capacity,
            held: 0,
            sold: 0,
            blocked: 0,
        });
        let pools = pools.collect();
        let event = Event::new(number, create.id, create.name, create.layout, pools, create.policy, now);
        self.add_event(event);
        let from = changes.touched.len();
        changes.touched.push(Touched::Event(number));
        self.log(changes, from, number, now, Kind::EventCreated);
        Ok(Reply::Event(number))
    }

    pub(super) fn update_event(
        &mut self,
        update: UpdateEvent,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let number = update.event;
        let patch = update.patch;
        let event = self.event(number).ok_or(Refusal::NotFound)?;
        let policy = match patch.policy {
            Some(changes) => Some(event.policy.patched(changes).map_err(Refusal::BadPolicy)?),
            None => None,
        };
        let state = match patch.open {
            Some(true) => EventState::Open,
            Some(false) => EventState::Closed,
            None => event.state,
        };
        self.require_capacities(number, &patch.capacities, now, changes)?;
        let event = self.event_mut(number);
        let kind = match (event.state, state) {
            (EventState::Open, EventState::Closed) => Kind::EventClosed,
            (EventState::Closed, EventState::Open) => Kind::EventOpened,
            _ => Kind::EventUpdated,
        };
        if kind == Kind::EventClosed {
            self.revoke_unpaid(number, now, changes);
        }
        let from = changes.touched.len();
        let event = self.event_mut(number);
        event.state = state;
        for (pool, capacity) in patch.capacities {
            let known = event.pool_mut(pool);
            known.capacity = capacity;
            changes.touched.push(Touched::Pool(number, pool, Box::new(PoolCounts::of(known))));
        }
        if let Some(policy) = policy {
            // Counts are only kept where there is a limit, and then they are right: only a limit that comes or goes
            // makes them anew.
            let was_limited = event.policy.units_per_holder_max > 0;
            let is_limited = policy.units_per_holder_max > 0;
            event.policy = policy;
            if was_limited != is_limited {
                self.recount_holders(number);
            }
        }
        changes.touched.push(Touched::Event(number));
        self.log(changes, from, number, now, kind);
        Ok(Reply::Event(number))
    }

    /// Closing an event takes away the holds that nobody is paying for; payments in progress may finish.
    fn revoke_unpaid(&mut self, event: EventNo, now: Timestamp, changes: &mut Changes) {
        let held = |hold: &crate::Hold| hold.event == event && hold.state == HoldState::Held;
        let mut slots: Vec<(u64, HoldSlot)> =
            self.holds().filter(|(_, hold)| held(hold)).map(|(slot, hold)| (hold.number, slot)).collect();
        slots.sort_unstable();
        for (_, slot) in slots {
            self.expire_if_due(slot, now, changes);
            if self.hold_at(slot).is_some_and(held) {
                self.end_hold(slot, HoldState::Revoked, Kind::HoldRevoked, now, changes);
            }
        }
    }

    fn recount_holders(&mut self, number: EventNo) {
        self.event_mut(number).reset_holders();
        let holds = self.holds().filter(|(_, hold)| hold.event == number && hold.keeps_items());
        let held = holds.map(|(_, hold)| (hold.holder.clone(), units(&hold.items)));
        let bookings =
            self.bookings().filter(|(_, sale)| sale.event == number && sale.state == BookingState::Booked);
        let sold = bookings.map(|(_, booking)| (booking.holder.clone(), units(&booking.items)));
        let counted: Vec<_> = held.chain(sold).collect();
        let event = self.event_mut(number);
        for (holder, count) in counted {
            event.count_holder(holder.as_ref(), count);
        }
    }

    pub(super) fn create_block(
        &mut self,
        create: CreateBlock,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        self.event(create.event).ok_or(Refusal::NotFound)?;
        let chosen = self.choose(create.event, &create.items, SEATS_PER_BLOCK_MAX, now, changes)?;
        let from = changes.touched.len();
        let slot = BlockSlot(self.blocks.put(Block {
            id: create.id,
            number: self.next_number(),
            event: create.event,
            items: Box::default(),
            reason: create.reason,
            created_at: now,
        }));
        let items = self.take(create.event, &chosen, Owner::Block(slot)).into_boxed_slice();
        self.touch_items(changes, create.event, &items);
        let block = self.blocks.get_mut(slot.0).expect("just added");
        block.items = items;
        let reply = Reply::Block(block.clone());
        changes.touched.push(Touched::Block(slot));
        self.log(changes, from, create.event, now, Kind::BlockCreated);
        Ok(reply)
    }

    pub(super) fn remove_block(
        &mut self,
        event: EventNo,
        block: BlockId,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let slot = self.blocks.find(block.as_raw()).ok_or(Refusal::NotFound)?;
        let known = self.blocks.get(slot).expect("just found");
        if known.event != event {
            return Err(Refusal::NotFound);
        }
        let items = known.items.clone();
        let from = changes.touched.len();
        self.put_back(event, &items, Owner::Block(BlockSlot(slot)));
        self.blocks.remove(slot);
        self.touch_items(changes, event, &items);
        changes.touched.push(Touched::BlockGone(BlockSlot(slot)));
        self.log(changes, from, event, now, Kind::BlockRemoved);
        Ok(Reply::BlockGone(event))
    }
}
