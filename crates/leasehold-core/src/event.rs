//! An event: its seats and pools, who owns each, and how many of each kind there are.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::best::FreeSeats;
use crate::{
    BlockSlot, BookingSlot, Epoch, EventNo, Fence, HoldSlot, Layout, Name, Policy, PoolNo, Reference, SeatNo,
    Text, Timestamp,
};

/// Something that is sold.
#[derive(Debug, Clone)]
pub struct Event {
    /// Its place in the order of creation.
    pub number: EventNo,
    /// Its id.
    pub id: Name,
    /// Its name for people.
    pub name: Text,
    /// Its seats' names and places.
    pub layout: Arc<Layout>,
    /// Its rules.
    pub policy: Policy,
    /// Whether it sells.
    pub state: EventState,
    /// Grows by one with every log entry about it.
    pub version: u64,
    /// When it was created.
    pub created_at: Timestamp,
    seats: Vec<Seat>,
    pools: Vec<Pool>,
    counts: StatusCounts,
    free: FreeSeats,
    /// Units held and owned by each holder; only kept while the policy limits them.
    holders: Option<HashMap<Reference, u64>>,
    /// Holds that are being paid for.
    payments_in_flight: u32,
}

/// Whether an event sells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventState {
    /// It sells.
    Open,
    /// It sells nothing new.
    Closed,
}

/// A seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// The highest fence issued for it.
    pub fence: Fence,
    /// Who has it.
    pub owner: Owner,
}

/// Who has a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Nobody.
    Free,
    /// A buyer who has not paid yet.
    Hold(HoldSlot),
    /// A buyer who has.
    Booking(BookingSlot),
    /// The operator.
    Block(BlockSlot),
}

/// How a seat stands, for the world to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeatStatus {
    /// Nobody has it.
    Free,
    /// Held.
    Held,
    /// Sold.
    Sold,
    /// Blocked.
    Blocked,
}

/// Counted stock. What is neither held, sold nor blocked is free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its id.
    pub id: Name,
    /// Units there are.
    pub capacity: u32,
    /// Units held.
    pub held: u32,
    /// Units sold.
    pub sold: u32,
    /// Units blocked.
    pub blocked: u32,
}

/// How a pool stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolCounts {
    /// Units there are.
    pub capacity: u32,
    /// Units held.
    pub held: u32,
    /// Units sold.
    pub sold: u32,
    /// Units blocked.
    pub blocked: u32,
}

/// How many seats stand how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatusCounts {
    /// Free seats.
    pub free: u32,
    /// Held seats.
    pub held: u32,
    /// Sold seats.
    pub sold: u32,
    /// Blocked seats.
    pub blocked: u32,
}

impl Event {
    /// An event with everything free.
    pub fn new(
        number: EventNo,
        id: Name,
        name: Text,
        layout: Arc<Layout>,
        pools: Vec<Pool>,
        policy: Policy,
        created_at: Timestamp,
    ) -> Self {
        let seat_count = layout.seat_count();
        let holders = (policy.units_per_holder_max > 0).then(HashMap::new);
        Self {
            number,
            id,
            name,
            policy,
            state: EventState::Open,
            version: 0,
            created_at,
            seats: vec![Seat { fence: Fence(0), owner: Owner::Free }; seat_count as usize],
            pools,
            counts: StatusCounts { free: seat_count, ..StatusCounts::default() },
            free: FreeSeats::all(seat_count),
            holders,
            payments_in_flight: 0,
            layout,
        }
    }

    /// All seats in the layout's order.
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// One seat.
    ///
    /// # Panics
    /// When the seat is not of this event.
    pub fn seat(&self, seat: SeatNo) -> Seat {
        self.seats[seat.0 as usize]
    }

    /// All pools.
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// The pool with this id.
    pub fn pool_number(&self, id: &str) -> Option<PoolNo> {
        self.pools.iter().position(|pool| pool.id.as_str() == id).map(|place| PoolNo(place as u32))
    }

    /// How many seats stand how.
    pub fn counts(&self) -> StatusCounts {
        self.counts
    }

    /// Units this holder holds and owns, where the policy limits them.
    pub fn units_of(&self, holder: &Reference) -> Option<u64> {
        self.holders.as_ref().map(|holders| holders.get(holder).copied().unwrap_or(0))
    }

    /// Holds that are being paid for.
    pub fn payments_in_flight(&self) -> u32 {
        self.payments_in_flight
    }

    /// Loading: raises a seat's fence to one that was issued.
    pub fn load_fence(&mut self, seat: SeatNo, fence: Fence) {
        if let Some(known) = self.seats.get_mut(seat.0 as usize) {
            known.fence = known.fence.max(fence);
        }
    }

    /// Loading: sets a pool's capacity.
    pub fn load_capacity(&mut self, pool: PoolNo, capacity: u32) {
        if let Some(known) = self.pools.get_mut(pool.0 as usize) {
            known.capacity = capacity;
        }
    }

    /// Loading: sets what of the event itself can change.
    pub fn load_rules(&mut self, policy: Policy, state: EventState, version: u64) {
        self.policy = policy;
        self.state = state;
        self.version = version;
        self.reset_holders();
    }

    pub(crate) fn free_seats(&mut self) -> &mut FreeSeats {
        &mut self.free
    }

    pub(crate) fn pool_mut(&mut self, pool: PoolNo) -> &mut Pool {
        &mut self.pools[pool.0 as usize]
    }

    /// Gives a seat to a new owner with a higher fence.
    pub(crate) fn grant(&mut self, seat: SeatNo, owner: Owner, epoch: Epoch) -> Fence {
        let fence = self.seats[seat.0 as usize].fence.next(epoch);
        self.set_fence(seat, fence);
        self.set_owner(seat, owner);
        fence
    }

    /// Raises a seat's fence. It never falls.
    pub(crate) fn set_fence(&mut self, seat: SeatNo, fence: Fence) {
        let current = &mut self.seats[seat.0 as usize].fence;
        assert!(*current <= fence, "a fence never falls");
        *current = fence;
    }

    /// Passes a seat on and keeps the counts right.
    pub(crate) fn set_owner(&mut self, seat: SeatNo, owner: Owner) {
        let current = &mut self.seats[seat.0 as usize].owner;
        let before = std::mem::replace(current, owner);
        *self.counts.of(before.status()) -= 1;
        *self.counts.of(owner.status()) += 1;
        self.free.set(seat, owner == Owner::Free);
    }

    /// Loading a part: sets a seat, and no count.
    pub(crate) fn load_seat(&mut self, seat: SeatNo, fence: Fence, owner: Owner) {
        self.seats[seat.0 as usize] = Seat { fence, owner };
        self.free.set(seat, owner == Owner::Free);
    }

    pub(crate) fn set_counts(&mut self, counts: StatusCounts) {
        self.counts = counts;
    }

    /// Counts units to or from a holder.
    pub(crate) fn count_holder(&mut self, holder: Option<&Reference>, change: i64) {
        let (Some(holders), Some(holder)) = (&mut self.holders, holder) else { return };
        let units = holders.get(holder).copied().unwrap_or(0);
        let units = units.checked_add_signed(change).expect("a holder gives back only what it had");
        if units == 0 {
            holders.remove(holder);
        } else {
            holders.insert(holder.clone(), units);
        }
    }

    /// Counts a hold that is being paid for from now on.
    pub(crate) fn count_payment_begun(&mut self) {
        self.payments_in_flight += 1;
    }

    /// Counts a hold that is not being paid for any more.
    pub(crate) fn count_payment_over(&mut self) {
        let left = self.payments_in_flight.checked_sub(1);
        self.payments_in_flight = left.expect("a payment that is over was in progress");
    }

    pub(crate) fn set_payments_in_flight(&mut self, count: u32) {
        self.payments_in_flight = count;
    }

    /// Begins or ends the counting of holders; the caller counts what there is.
    pub(crate) fn reset_holders(&mut self) {
        self.holders = (self.policy.units_per_holder_max > 0).then(HashMap::new);
    }

    pub(crate) fn holders(&self) -> Option<&HashMap<Reference, u64>> {
        self.holders.as_ref()
    }
}

impl Owner {
    /// How a seat with this owner stands.
    pub fn status(self) -> SeatStatus {
        match self {
            Owner::Free => SeatStatus::Free,
            Owner::Hold(_) => SeatStatus::Held,
            Owner::Booking(_) => SeatStatus::Sold,
            Owner::Block(_) => SeatStatus::Blocked,
        }
    }
}

impl Pool {
    /// Units nobody has.
    pub fn free(&self) -> u32 {
        self.capacity - self.in_use()
    }

    /// Units somebody has.
    pub fn in_use(&self) -> u32 {
        self.held + self.sold + self.blocked
    }
}

impl PoolCounts {
    /// How this pool stands.
    pub fn of(pool: &Pool) -> Self {
        Self { capacity: pool.capacity, held: pool.held, sold: pool.sold, blocked: pool.blocked }
    }

    /// Units nobody has.
    pub fn free(&self) -> u32 {
        self.capacity - self.held - self.sold - self.blocked
    }
}

impl StatusCounts {
    fn of(&mut self, status: SeatStatus) -> &mut u32 {
        match status {
            SeatStatus::Free => &mut self.free,
            SeatStatus::Held => &mut self.held,
            SeatStatus::Sold => &mut self.sold,
            SeatStatus::Blocked => &mut self.blocked,
        }
    }

    /// Counts a seat that changed from one status to another.
    pub fn pass(&mut self, from: SeatStatus, to: SeatStatus) {
        *self.of(from) -= 1;
        *self.of(to) += 1;
    }

    /// All seats.
    pub fn total(&self) -> u32 {
        self.free + self.held + self.sold + self.blocked
    }
}
