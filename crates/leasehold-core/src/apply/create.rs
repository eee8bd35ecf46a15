//! The beginning of a hold, and what its holder may change about it.

use super::want::split;
use super::wrong_state;
use crate::hold::units;
use crate::limits::{HOLD_TTL_MAX, HOLD_TTL_MIN, ITEMS_PER_HOLD_MAX};
use crate::{
    AmendHold, Changes, CreateHold, EventState, Hold, HoldSlot, HoldState, Item, ItemRequest, Kind, Millis,
    Owner, PoolNo, Refusal, Reply, State, Timestamp, Touched,
};

impl State {
    pub(super) fn create_hold(
        &mut self,
        create: CreateHold,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let event = self.event(create.event).ok_or(Refusal::NotFound)?;
        if event.state == EventState::Closed {
            return Err(Refusal::EventClosed);
        }
        let policy = event.policy;
        let ttl = create.ttl.unwrap_or(policy.hold_ttl);
        if ttl < HOLD_TTL_MIN || ttl > policy.hold_total_max {
            return Err(Refusal::Invalid("ttl_ms is out of range"));
        }
        // Ids of holds under idempotency keys are made from these, and so not by chance alone.
        if self.hold_slot(create.id).is_some() {
            return Err(Refusal::Invalid("the hold's id is in use"));
        }
        let chosen = self.choose(create.event, &create.items, ITEMS_PER_HOLD_MAX, now, changes)?;
        self.require_within_limit(create.event, create.holder.as_ref(), chosen.units(), 0, now, changes)?;

        let from = changes.touched.len();
        let hard_deadline = now.after(policy.hold_total_max);
        let slot = HoldSlot(self.holds.put(Hold {
            id: create.id,
            number: self.next_number(),
            event: create.event,
            state: HoldState::Held,
            version: 1,
            extends: 0,
            items: Box::default(),
            holder: create.holder,
            created_at: now,
            expires_at: now.after(ttl),
            hard_deadline,
            life_end: hard_deadline.after(policy.payment_max),
            ended_at: Timestamp::NEVER,
            payment: None,
            booking: None,
        }));
        let items = self.take(create.event, &chosen, Owner::Hold(slot)).into_boxed_slice();
        self.touch_items(changes, create.event, &items);
        changes.touched.push(Touched::Hold(slot));
        let hold = self.hold_mut(slot);
        hold.items = items;
        let (holder, count) = (hold.holder.clone(), units(&hold.items));
        self.event_mut(create.event).count_holder(holder.as_ref(), count);
        self.schedule(slot);
        self.log(changes, from, create.event, now, Kind::HoldCreated);
        Ok(self.hold_reply(slot))
    }

    pub(super) fn amend_hold(
        &mut self,
        amend: AmendHold,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let slot = self.current_hold(amend.hold, now, changes)?;
        let hold = self.hold_at(slot).expect("just found").clone();
        if hold.state != HoldState::Held {
            return Err(wrong_state(hold.state));
        }
        if amend.version.is_some_and(|version| version != hold.version) {
            return Err(Refusal::VersionMismatch(hold.version));
        }
        let event = self.event(hold.event).expect("a hold has an event");
        if event.state == EventState::Closed {
            return Err(Refusal::EventClosed);
        }
        let extends_max = event.policy.extends_max;
        let expires_at = match amend.extend {
            Some(span) => extended(&hold, span, extends_max, now)?,
            None => hold.expires_at,
        };
        let (amends, extends) =
            (!amend.add.is_empty() || !amend.remove.is_empty(), expires_at != hold.expires_at);
        if !amends && amend.extend.is_none() {
            return Err(Refusal::Invalid("there is nothing to change"));
        }
        if !amends && !extends {
            return Ok(Reply::Hold(hold));
        }
        if amend.add.iter().any(|added| amend.remove.iter().any(|removed| same_thing(added, removed))) {
            return Err(Refusal::Invalid("an item is both added and removed"));
        }
        let (removed, kept) = split(&hold.items, &amend.remove)?;
        if kept.is_empty() && amend.add.is_empty() {
            return Err(Refusal::Invalid("a hold keeps at least one item; release it instead"));
        }
        let mut items = kept;
        let mut added = Vec::new();
        if !amend.add.is_empty() {
            let chosen = self.choose(hold.event, &amend.add, ITEMS_PER_HOLD_MAX, now, changes)?;
            // More units of a pool that the hold has are no more items.
            let has = |pool: PoolNo| {
                items.iter().any(|item| matches!(item, Item::Pool { pool: known, .. } if *known == pool))
            };
            let new_pools = chosen.pools.iter().filter(|(pool, _)| !has(*pool)).count();
            if items.len() + chosen.seats.len() + new_pools > ITEMS_PER_HOLD_MAX {
                return Err(Refusal::Invalid("there are too many items"));
            }
            let fewer = units(&removed).unsigned_abs();
            self.require_within_limit(hold.event, hold.holder.as_ref(), chosen.units(), fewer, now, changes)?;
            added = self.take(hold.event, &chosen, Owner::Hold(slot));
        }

        let from = changes.touched.len();
        self.put_back(hold.event, &removed, Owner::Hold(slot));
        self.event_mut(hold.event).count_holder(hold.holder.as_ref(), units(&added) - units(&removed));
        self.touch_items(changes, hold.event, &removed);
        self.touch_items(changes, hold.event, &added);
        changes.touched.push(Touched::Hold(slot));
        added.into_iter().for_each(|item| merge(&mut items, item));
        self.unschedule(slot);
        let hold = self.hold_mut(slot);
        hold.items = items.into_boxed_slice();
        hold.version += 1;
        hold.expires_at = expires_at;
        hold.extends += u32::from(extends);
        let event = hold.event;
        self.schedule(slot);
        self.log(changes, from, event, now, if amends { Kind::HoldAmended } else { Kind::HoldExtended });
        Ok(self.hold_reply(slot))
    }
}

/// When the hold ends if it is extended. Never earlier than planned, never after its hard deadline.
fn extended(hold: &Hold, span: Millis, extends_max: u32, now: Timestamp) -> Result<Timestamp, Refusal> {
    if span.0 == 0 || span > HOLD_TTL_MAX {
        return Err(Refusal::Invalid("extend_ms is out of range"));
    }
    if hold.extends >= extends_max || hold.expires_at >= hold.hard_deadline {
        return Err(Refusal::ExtendCap);
    }
    Ok(now.after(span).min(hold.hard_deadline).max(hold.expires_at))
}

fn same_thing(one: &ItemRequest, other: &ItemRequest) -> bool {
    match (one, other) {
        (ItemRequest::Seat(one), ItemRequest::Seat(other)) => one == other,
        (ItemRequest::Pool(one, _), ItemRequest::Pool(other, _)) => one == other,
        _ => false,
    }
}

/// Adds an item to a list in which every pool stands once.
fn merge(items: &mut Vec<Item>, item: Item) {
    if let Item::Pool { pool, quantity } = item {
        for known in items.iter_mut() {
            if let Item::Pool { pool: same, quantity: sum } = known
                && *same == pool
            {
                *sum += quantity;
                return;
            }
        }
    }
    items.push(item);
}
