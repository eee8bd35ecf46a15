//! Choosing what a request asks for: every item, free at this instant, or a refusal.

use crate::limits::{BEST_COUNT_MAX, BEST_ITEMS_MAX, EXPIRIES_PER_COMMAND_MAX, POOL_CAPACITY_MAX};
use crate::{
    Changes, EventNo, Item, ItemRequest, Owner, PoolNo, Reference, Refusal, SeatNo, SectionNo, State,
    Timestamp,
};

/// Items that are free and were chosen for a request. Seats have no fence yet.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) seats: Vec<SeatNo>,
    pub(super) pools: Vec<(PoolNo, u32)>,
}

/// How many more holds that are over a command may end.
struct Due {
    left: usize,
    now: Timestamp,
}

impl Chosen {
    pub(super) fn units(&self) -> u64 {
        self.seats.len() as u64 + self.pools.iter().map(|(_, quantity)| u64::from(*quantity)).sum::<u64>()
    }

    fn require_distinct_seats(&self) -> Result<(), Refusal> {
        let mut seats = self.seats.clone();
        seats.sort_unstable();
        let twice = seats.windows(2).any(|pair| pair[0] == pair[1]);
        if twice { Err(Refusal::Invalid("a seat is there twice")) } else { Ok(()) }
    }

    /// The same pool twice counts together, so that two halves cannot pass a check that the whole fails.
    fn add_pool(&mut self, pool: PoolNo, quantity: u32) -> Result<(), Refusal> {
        if quantity == 0 {
            return Err(Refusal::Invalid("a quantity must be at least 1"));
        }
        match self.pools.iter_mut().find(|(known, _)| *known == pool) {
            Some((_, sum)) => {
                *sum = sum.checked_add(quantity).ok_or(Refusal::Invalid("a quantity is too large"))?
            }
            None => self.pools.push((pool, quantity)),
        }
        Ok(())
    }
}

impl State {
    /// Chooses what `items` ask for, or refuses. Holds that stand in the way and are over are ended first.
    pub(super) fn choose(
        &mut self,
        event: EventNo,
        items: &[ItemRequest],
        items_max: usize,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Chosen, Refusal> {
        if items.is_empty() {
            return Err(Refusal::Invalid("there must be at least one item"));
        }
        if items.len() > items_max {
            return Err(Refusal::Invalid("there are too many items"));
        }
        let mut chosen = Chosen::default();
        let mut best = Vec::new();
        for item in items {
            match *item {
                ItemRequest::Seat(seat) => chosen.seats.push(seat),
                ItemRequest::Pool(pool, quantity) => chosen.add_pool(pool, quantity)?,
                ItemRequest::Best { count: 0, .. } => {
                    return Err(Refusal::Invalid("a count must be at least 1"));
                }
                ItemRequest::Best { count, .. } if count > BEST_COUNT_MAX => {
                    return Err(Refusal::Invalid("a count is too large"));
                }
                ItemRequest::Best { count, section } => best.push((count, section)),
            }
        }
        // Before anything is looked for.
        let best_count: usize = best.iter().map(|(count, _)| *count as usize).sum();
        if best.len() > BEST_ITEMS_MAX || chosen.seats.len() + chosen.pools.len() + best_count > items_max {
            return Err(Refusal::Invalid("there are too many items"));
        }
        chosen.require_distinct_seats()?;
        self.require_seats(event, &chosen.seats, now, changes)?;
        let mut due = Due { left: EXPIRIES_PER_COMMAND_MAX, now };
        for &(pool, quantity) in &chosen.pools {
            self.require_units(event, pool, quantity, &mut due, changes)?;
        }
        for (count, section) in best {
            let seats = self.require_best(event, count, section, &chosen.seats, &mut due, changes)?;
            chosen.seats.extend(seats);
        }
        Ok(chosen)
    }

    fn require_seats(
        &mut self,
        event: EventNo,
        seats: &[SeatNo],
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<(), Refusal> {
        let mut taken = Vec::new();
        for &seat in seats {
            if seat.0 as usize >= self.event_mut(event).seats().len() {
                return Err(Refusal::NotFound);
            }
            if let Owner::Hold(slot) = self.event_mut(event).seat(seat).owner {
                self.expire_if_due(slot, now, changes);
            }
            if self.event_mut(event).seat(seat).owner != Owner::Free {
                taken.push(seat);
            }
        }
        if taken.is_empty() { Ok(()) } else { Err(Refusal::SeatsTaken(taken)) }
    }

    /// Nobody is told "sold out" while holds that are over still count: those are ended first.
    fn require_units(
        &mut self,
        event: EventNo,
        pool: PoolNo,
        quantity: u32,
        due: &mut Due,
        changes: &mut Changes,
    ) -> Result<(), Refusal> {
        loop {
            let known = self.event_mut(event).pools().get(pool.0 as usize).ok_or(Refusal::NotFound)?;
            if quantity <= known.free() {
                return Ok(());
            }
            let refusal = Refusal::PoolShort { pool, available: known.free(), returning: known.held };
            if !self.end_due(1, due, changes)? {
                return Err(refusal);
            }
        }
    }

    /// Refuses capacities below what is in use. Nobody is told so while holds that are over still count: those are ended
    /// first.
    pub(super) fn require_capacities(
        &mut self,
        event: EventNo,
        capacities: &[(PoolNo, u32)],
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<(), Refusal> {
        let mut due = Due { left: EXPIRIES_PER_COMMAND_MAX, now };
        for &(pool, capacity) in capacities {
            if capacity > POOL_CAPACITY_MAX {
                return Err(Refusal::Invalid("a capacity is too large"));
            }
            loop {
                let known = self.event_mut(event).pools().get(pool.0 as usize).ok_or(Refusal::NotFound)?;
                let in_use = known.in_use();
                if in_use <= capacity {
                    break;
                }
                if !self.end_due(1, &mut due, changes)? {
                    return Err(Refusal::CapacityInUse { pool, in_use });
                }
            }
        }
        Ok(())
    }

    /// Refuses when as many payments are in progress as the event allows. Those that are too late are ended first.
    pub(super) fn require_place_to_pay(
        &mut self,
        event: EventNo,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<(), Refusal> {
        let mut due = Due { left: EXPIRIES_PER_COMMAND_MAX, now };
        loop {
            let this = self.event_mut(event);
            let limit = this.policy.payments_in_flight_max;
            if limit == 0 || this.payments_in_flight() < limit {
                return Ok(());
            }
            if !self.end_due(1, &mut due, changes)? {
                return Err(Refusal::PaymentsBusy);
            }
        }
    }

    /// Ends up to `count` holds that are over; false when there is none. Refuses when the command has ended its share.
    fn end_due(&mut self, count: usize, due: &mut Due, changes: &mut Changes) -> Result<bool, Refusal> {
        if self.next_due().is_none_or(|at| due.now < at) {
            return Ok(false);
        }
        if due.left == 0 {
            return Err(Refusal::NotYet);
        }
        due.left -= self.expire_due(due.now, count.min(due.left), changes);
        Ok(true)
    }

    fn require_best(
        &mut self,
        event: EventNo,
        count: u32,
        section: Option<SectionNo>,
        without: &[SeatNo],
        due: &mut Due,
        changes: &mut Changes,
    ) -> Result<Vec<SeatNo>, Refusal> {
        loop {
            let this = self.event_mut(event);
            if section.is_some_and(|section| section.0 as usize >= this.layout.sections().len()) {
                return Err(Refusal::NotFound);
            }
            let layout = this.layout.clone();
            without.iter().for_each(|&seat| this.free_seats().set(seat, false));
            let found = this.free_seats().best(&layout, count, section);
            without.iter().for_each(|&seat| this.free_seats().set(seat, true));
            if let Some(seats) = found {
                return Ok(seats);
            }
            let counts = this.counts();
            if !self.end_due(usize::MAX, due, changes)? {
                return Err(Refusal::NotTogether { available: counts.free, returning: counts.held });
            }
        }
    }

    /// Refuses when the holder would have more than the event allows. Nobody is told so while holds that are over still
    /// count: those are ended first.
    pub(super) fn require_within_limit(
        &mut self,
        event: EventNo,
        holder: Option<&Reference>,
        more: u64,
        fewer: u64,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<(), Refusal> {
        let mut due = Due { left: EXPIRIES_PER_COMMAND_MAX, now };
        loop {
            let this = self.event_mut(event);
            let limit = this.policy.units_per_holder_max;
            let Some(has) = holder.and_then(|holder| this.units_of(holder)) else { return Ok(()) };
            if has + more <= u64::from(limit) + fewer {
                return Ok(());
            }
            // Who asks for more than anybody may have need not wait for what others give back.
            if more > u64::from(limit) + fewer || !self.end_due(1, &mut due, changes)? {
                return Err(Refusal::HolderLimit { has, limit });
            }
        }
    }

    /// Gives what was chosen to `owner`, and lists it as items with their fences.
    pub(super) fn take(&mut self, event: EventNo, chosen: &Chosen, owner: Owner) -> Vec<Item> {
        let epoch = self.epoch;
        let this = self.event_mut(event);
        let mut items = Vec::with_capacity(chosen.seats.len() + chosen.pools.len());
        for &seat in &chosen.seats {
            items.push(Item::Seat { seat, fence: this.grant(seat, owner, epoch) });
        }
        for &(pool, quantity) in &chosen.pools {
            let known = this.pool_mut(pool);
            match owner {
                Owner::Hold(_) => known.held += quantity,
                Owner::Booking(_) => known.sold += quantity,
                Owner::Block(_) => known.blocked += quantity,
                Owner::Free => unreachable!("nobody takes items for nobody"),
            }
            assert!(known.in_use() <= known.capacity, "a pool is never oversold");
            items.push(Item::Pool { pool, quantity });
        }
        items
    }

    /// Takes items from the owner they have, who held, bought or blocked them.
    pub(super) fn put_back(&mut self, event: EventNo, items: &[Item], owner: Owner) {
        let this = self.event_mut(event);
        for item in items {
            match *item {
                Item::Seat { seat, .. } => {
                    assert_eq!(this.seat(seat).owner, owner, "only its owner gives a seat back");
                    this.set_owner(seat, Owner::Free);
                }
                Item::Pool { pool, quantity } => {
                    let known = this.pool_mut(pool);
                    match owner {
                        Owner::Hold(_) => known.held -= quantity,
                        Owner::Booking(_) => known.sold -= quantity,
                        Owner::Block(_) => known.blocked -= quantity,
                        Owner::Free => unreachable!("nobody gives back for nobody"),
                    }
                }
            }
        }
    }
}

/// Splits held items into those asked for and the rest. Refuses what is not held.
pub(super) fn split(held: &[Item], wanted: &[ItemRequest]) -> Result<(Vec<Item>, Vec<Item>), Refusal> {
    let not_held = Refusal::Invalid("an item is not part of the hold");
    let mut chosen = Chosen::default();
    for item in wanted {
        match *item {
            ItemRequest::Seat(seat) => chosen.seats.push(seat),
            ItemRequest::Pool(pool, quantity) => chosen.add_pool(pool, quantity)?,
            ItemRequest::Best { .. } => return Err(Refusal::Invalid("held items are named, not chosen")),
        }
    }
    chosen.require_distinct_seats()?;
    let (mut part, mut rest) = (Vec::new(), Vec::new());
    for item in held {
        match *item {
            Item::Seat { seat, .. } => match chosen.seats.iter().position(|wanted| *wanted == seat) {
                Some(place) => {
                    chosen.seats.swap_remove(place);
                    part.push(*item);
                }
                None => rest.push(*item),
            },
            Item::Pool { pool, quantity } => {
                let place = chosen.pools.iter().position(|(wanted, _)| *wanted == pool);
                let asked = place.map_or(0, |place| chosen.pools.swap_remove(place).1);
                let left = quantity.checked_sub(asked).ok_or_else(|| not_held.clone())?;
                part.extend((asked > 0).then_some(Item::Pool { pool, quantity: asked }));
                rest.extend((left > 0).then_some(Item::Pool { pool, quantity: left }));
            }
        }
    }
    if chosen.seats.is_empty() && chosen.pools.is_empty() { Ok((part, rest)) } else { Err(not_held) }
}
