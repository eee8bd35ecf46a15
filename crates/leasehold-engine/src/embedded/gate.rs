//! The gate: turns losers away from memory, without queueing.
//!
//! For each seat it has the instant until which the seat is plainly taken. The writer sets it as soon as a
//! command was applied, before the commit: if that commit fails the process ends, so nobody is
//! refused for something that did not happen and then goes on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use leasehold_core::{Event, EventState, ItemRequest, Owner, PoolNo, Refusal, SeatNo, State, Timestamp};

/// What is plainly taken in one event.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Until when each seat is taken, in milliseconds; 0 when free, the maximum when sold or blocked.
    taken_until: Box<[AtomicU64]>,
    /// For each pool its free units, and above them its held ones.
    pools: Box<[AtomicU64]>,
    closed: AtomicBool,
}

impl Gate {
    pub(crate) fn new(event: &Event, state: &State) -> Self {
        let gate = Self {
            taken_until: event.seats().iter().map(|_| AtomicU64::new(0)).collect(),
            pools: event.pools().iter().map(|_| AtomicU64::new(0)).collect(),
            closed: AtomicBool::new(event.state == EventState::Closed),
        };
        for (place, seat) in event.seats().iter().enumerate().filter(|(_, seat)| seat.owner != Owner::Free) {
            gate.set_seat(SeatNo(place as u32), seat.owner, state);
        }
        for place in 0..event.pools().len() {
            gate.set_pool(PoolNo(place as u32), event);
        }
        gate
    }

    pub(crate) fn set_seat(&self, seat: SeatNo, owner: Owner, state: &State) {
        let until = match owner {
            Owner::Free => Timestamp::default(),
            Owner::Hold(slot) => state.hold_at(slot).map_or(Timestamp::default(), |hold| hold.live_until()),
            Owner::Booking(_) | Owner::Block(_) => Timestamp::NEVER,
        };
        self.taken_until[seat.0 as usize].store(until.as_millis(), Ordering::Release);
    }

    pub(crate) fn set_pool(&self, pool: PoolNo, event: &Event) {
        let known = &event.pools()[pool.0 as usize];
        let packed = u64::from(known.held) << 32 | u64::from(known.free());
        self.pools[pool.0 as usize].store(packed, Ordering::Release);
    }

    pub(crate) fn set_closed(&self, state: EventState) {
        self.closed.store(state == EventState::Closed, Ordering::Release);
    }

    /// The refusal of a hold that plainly cannot be granted at `now`. Every other request is for the writer.
    ///
    /// `nothing_due` says that no hold is over and still counted, so that "sold out" is true.
    pub(crate) fn refusal(
        &self,
        items: &[ItemRequest],
        now: Timestamp,
        nothing_due: bool,
    ) -> Option<Refusal> {
        if self.closed.load(Ordering::Acquire) {
            return Some(Refusal::EventClosed);
        }
        let mut taken = Vec::new();
        let mut short = None;
        for item in items {
            match *item {
                ItemRequest::Seat(seat) => {
                    let until = self.taken_until.get(seat.0 as usize)?;
                    if now.as_millis() < until.load(Ordering::Acquire) {
                        taken.push(seat);
                    }
                }
                ItemRequest::Pool(pool, quantity) if nothing_due => {
                    let packed = self.pools.get(pool.0 as usize)?.load(Ordering::Acquire);
                    let (available, returning) = (packed as u32, (packed >> 32) as u32);
                    if available < quantity {
                        short = short.or(Some(Refusal::PoolShort { pool, available, returning }));
                    }
                }
                ItemRequest::Pool(..) | ItemRequest::Best { .. } => {}
            }
        }
        if taken.is_empty() { short } else { Some(Refusal::SeatsTaken(taken)) }
    }
}
