//! What must hold after every step, whatever happened. The numbers are those of ARCHITECTURE.md.
//!
//! [`check`] recomputes the state from its holds, bookings and blocks and compares. [`Watch`] sees every
//! step and judges what only shows between two states: fences, versions, times.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::hold::units;
use crate::{
    BookingId, BookingState, Changes, Command, Event, EventNo, Fence, Hold, HoldId, HoldState, Item,
    ItemRequest, Kind, Owner, PaymentState, PoolNo, Refusal, Reply, Row, SeatNo, State, StatusCounts,
    Timestamp, Touched,
};

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Which: `I1` to `I19`.
    pub invariant: &'static str,
    /// What was found.
    pub what: String,
}

/// Recomputes everything that can be, and lists what differs.
pub fn check(state: &State) -> Vec<Broken> {
    let mut broken = Vec::new();
    let claims = claims(state, &mut broken);
    for event in state.events() {
        check_seats(event, &claims, &mut broken);
        check_pools(state, event, &mut broken);
        check_holders(state, event, &mut broken);
        check_payments_in_flight(state, event, &mut broken);
    }
    check_holds(state, &mut broken);
    check_payments(state, &mut broken);
    broken
}

/// Every live claim on a seat; a second one breaks I1.
fn claims(state: &State, broken: &mut Vec<Broken>) -> BTreeMap<(EventNo, SeatNo), Owner> {
    let mut claims = BTreeMap::new();
    let mut claim = |event: EventNo, items: &[Item], owner: Owner| {
        for item in items {
            if let Item::Seat { seat, .. } = *item
                && let Some(other) = claims.insert((event, seat), owner)
            {
                broken.push(Broken {
                    invariant: "I1",
                    what: format!("seat {seat:?} has {owner:?} and {other:?}"),
                });
            }
        }
    };
    for (slot, hold) in state.holds().filter(|(_, hold)| hold.keeps_items()) {
        claim(hold.event, &hold.items, Owner::Hold(slot));
    }
    for (slot, booking) in state.bookings().filter(|(_, booking)| booking.state == BookingState::Booked) {
        claim(booking.event, &booking.items, Owner::Booking(slot));
    }
    for (slot, block) in state.blocks() {
        claim(block.event, &block.items, Owner::Block(slot));
    }
    claims
}

fn check_seats(event: &Event, claims: &BTreeMap<(EventNo, SeatNo), Owner>, broken: &mut Vec<Broken>) {
    let mut counts = StatusCounts::default();
    for (place, seat) in event.seats().iter().enumerate() {
        let number = SeatNo(place as u32);
        let claimed = claims.get(&(event.number, number)).copied().unwrap_or(Owner::Free);
        if seat.owner != claimed {
            let what = format!("seat {number:?} belongs to {:?} and is claimed by {claimed:?}", seat.owner);
            broken.push(Broken { invariant: "I18", what });
        }
        match claimed {
            Owner::Free => counts.free += 1,
            Owner::Hold(_) => counts.held += 1,
            Owner::Booking(_) => counts.sold += 1,
            Owner::Block(_) => counts.blocked += 1,
        }
    }
    if counts != event.counts() || counts.total() != event.layout.seat_count() {
        broken
            .push(Broken { invariant: "I2", what: format!("counted {counts:?}, kept {:?}", event.counts()) });
    }
}

fn check_pools(state: &State, event: &Event, broken: &mut Vec<Broken>) {
    let mut sums = vec![(0_u64, 0_u64, 0_u64); event.pools().len()];
    let quantity_of = |items: &[Item], add: &mut dyn FnMut(usize, u64)| {
        for item in items {
            if let Item::Pool { pool, quantity } = *item {
                add(pool.0 as usize, u64::from(quantity));
            }
        }
    };
    for (_, hold) in state.holds().filter(|(_, hold)| hold.event == event.number && hold.keeps_items()) {
        quantity_of(&hold.items, &mut |pool, quantity| sums[pool].0 += quantity);
    }
    let booked =
        |booking: &crate::Booking| booking.event == event.number && booking.state == BookingState::Booked;
    for (_, booking) in state.bookings().filter(|(_, booking)| booked(booking)) {
        quantity_of(&booking.items, &mut |pool, quantity| sums[pool].1 += quantity);
    }
    for (_, block) in state.blocks().filter(|(_, block)| block.event == event.number) {
        quantity_of(&block.items, &mut |pool, quantity| sums[pool].2 += quantity);
    }
    for (pool, (held, sold, blocked)) in event.pools().iter().zip(sums) {
        let kept = (u64::from(pool.held), u64::from(pool.sold), u64::from(pool.blocked));
        if kept != (held, sold, blocked) {
            let what = format!("pool {}: counted {:?}, kept {kept:?}", pool.id, (held, sold, blocked));
            broken.push(Broken { invariant: "I3", what });
        }
        if held + sold + blocked > u64::from(pool.capacity) {
            broken.push(Broken { invariant: "I2", what: format!("pool {} is oversold", pool.id) });
        }
    }
}

fn check_holders(state: &State, event: &Event, broken: &mut Vec<Broken>) {
    let Some(kept) = event.holders() else { return };
    let mut counted: BTreeMap<&str, i64> = BTreeMap::new();
    for (_, hold) in state.holds().filter(|(_, hold)| hold.event == event.number && hold.keeps_items()) {
        if let Some(holder) = &hold.holder {
            *counted.entry(holder.as_str()).or_default() += units(&hold.items);
        }
    }
    let booked =
        |booking: &crate::Booking| booking.event == event.number && booking.state == BookingState::Booked;
    for (_, booking) in state.bookings().filter(|(_, booking)| booked(booking)) {
        if let Some(holder) = &booking.holder {
            *counted.entry(holder.as_str()).or_default() += units(&booking.items);
        }
    }
    let same = counted.len() == kept.len()
        && kept.iter().all(|(holder, count)| {
            counted.get(holder.as_str()).map(|units| units.unsigned_abs()) == Some(*count)
        });
    if !same {
        broken
            .push(Broken { invariant: "I12", what: format!("holders: counted {counted:?}, kept {kept:?}") });
    }
}

fn check_payments_in_flight(state: &State, event: &Event, broken: &mut Vec<Broken>) {
    let paying = |hold: &Hold| hold.event == event.number && hold.state == HoldState::Confirming;
    let (counted, kept) =
        (state.holds().filter(|(_, hold)| paying(hold)).count(), event.payments_in_flight());
    if counted != kept as usize {
        broken.push(Broken { invariant: "I19", what: format!("payments: counted {counted}, kept {kept}") });
    }
}

fn check_holds(state: &State, broken: &mut Vec<Broken>) {
    let (mut scheduled, mut kept) = (0, 0);
    for (slot, hold) in state.holds() {
        let until = hold.live_until();
        let finite = hold.keeps_items() && until != Timestamp::NEVER;
        scheduled += usize::from(finite);
        if finite && !state.due_holds().contains(&(until, slot)) {
            broken.push(Broken { invariant: "I5", what: format!("{} is not scheduled to end", hold.id) });
        }
        if let Some(deadline) = hold.kept_until() {
            kept += usize::from(state.kept_holds().contains(&(deadline, slot)));
        }
        let late = finite && (until > hold.life_end || hold.expires_at > hold.life_end);
        let extended_too_far =
            hold.payment.is_none() && hold.expires_at > hold.hard_deadline && hold.state == HoldState::Held;
        if late || extended_too_far {
            broken.push(Broken { invariant: "I5", what: format!("{} outlives its deadline", hold.id) });
        }
        let sold = hold.state == HoldState::Confirmed;
        if sold != hold.booking.is_some_and(|id| state.booking(id).is_some()) {
            broken.push(Broken { invariant: "I6", what: format!("{} and its booking disagree", hold.id) });
        }
    }
    for (_, sale) in state.bookings() {
        if state.hold(sale.hold).is_none_or(|hold| hold.booking != Some(sale.id)) {
            broken.push(Broken { invariant: "I6", what: format!("{} and its hold disagree", sale.id) });
        }
    }
    let all_kept = state.holds().filter(|(_, hold)| hold.kept_until().is_some()).count();
    if (kept, all_kept) != (all_kept, state.kept_holds().len()) {
        broken.push(Broken {
            invariant: "I5",
            what: "the holds that are kept are not those listed".to_owned(),
        });
    }
    if scheduled != state.due_holds().len() {
        broken.push(Broken { invariant: "I5", what: "something is scheduled that is over".to_owned() });
    }
}

fn check_payments(state: &State, broken: &mut Vec<Broken>) {
    let mut sales: BTreeMap<(EventNo, &str), usize> = BTreeMap::new();
    for (_, sale) in state.bookings() {
        if let Some(reference) = &sale.payment_ref {
            *sales.entry((sale.event, reference.as_str())).or_default() += 1;
        }
    }
    for payment in state.payments() {
        let booked = sales.get(&(payment.event, payment.reference.as_str())).copied().unwrap_or(0);
        let hold = state.hold(payment.hold);
        let paying = hold.is_some_and(|hold| {
            hold.state == HoldState::Confirming
                && hold.payment.as_ref().is_some_and(|phase| phase.reference == payment.reference)
        });
        let listed = hold.is_some_and(|hold| {
            state.payments_of(hold).filter(|other| other.reference == payment.reference).count() == 1
        });
        let consistent = listed
            && match payment.state {
                PaymentState::Pending => paying && booked == 0,
                PaymentState::Booked => booked == 1,
                PaymentState::RefundDue | PaymentState::Void => booked == 0 && !paying,
            };
        if !consistent {
            let what = format!("payment {} is {:?}, {booked} bookings", payment.reference, payment.state);
            broken.push(Broken { invariant: "I7", what });
        }
    }
    // The other way round: whatever names a payment has it.
    let of_sales =
        state.bookings().filter_map(|(_, sale)| Some((sale.hold, sale.event, sale.payment_ref.as_ref()?)));
    let of_holds =
        state.holds().filter_map(|(_, hold)| Some((hold.id, hold.event, &hold.payment.as_ref()?.reference)));
    for (hold, event, reference) in of_sales.chain(of_holds) {
        if state.payment(event, reference).is_none_or(|payment| payment.hold != hold) {
            broken.push(Broken { invariant: "I7", what: format!("{hold} has no payment {reference}") });
        }
    }
}

/// Sees every step, and judges what only shows between two states.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    seq: u64,
    versions: BTreeMap<EventNo, u64>,
    /// For each seat that ever had an owner: the last one, as a hold's id or block's number, and the fence.
    seats: BTreeMap<(EventNo, SeatNo), (Option<u128>, Fence)>,
    holds: BTreeMap<HoldId, Hold>,
    cancelled: BTreeSet<BookingId>,
}

impl Watch {
    /// Judges one step: a command at `now` and what came of it. `changes` has this step's entries only.
    pub fn step(
        &mut self,
        state: &State,
        command: &Command,
        changes: &Changes,
        outcome: &Result<Reply, Refusal>,
        now: Timestamp,
    ) -> Vec<Broken> {
        let mut broken = Vec::new();
        for entry in &changes.entries {
            self.seq += 1;
            let version = self.versions.entry(entry.event).or_default();
            *version += 1;
            if entry.seq != self.seq || entry.version != *version {
                broken.push(Broken { invariant: "I14", what: format!("gap before {entry:?}") });
            }
            if outcome.is_err() && entry.kind != Kind::HoldExpired {
                broken.push(Broken { invariant: "I10", what: format!("refused, and yet {entry:?}") });
            }
            for touched in changes.touched_by(entry) {
                match *touched {
                    Touched::Hold(slot) => {
                        if let Some(hold) = state.hold_at(slot) {
                            self.judge_hold(state, hold, entry.kind, now, &mut broken);
                        }
                    }
                    Touched::Booking(slot) if entry.kind == Kind::BookingCancelled => {
                        let sale = state.booking_at(slot).map(|sale| sale.id);
                        if let Some(id) = sale.filter(|id| !self.cancelled.insert(*id)) {
                            broken
                                .push(Broken { invariant: "I8", what: format!("{id} was cancelled twice") });
                        }
                    }
                    _ => {}
                }
            }
        }
        for touched in &changes.touched {
            if let Touched::Seat(event, seat, ..) = *touched {
                self.judge_seat(state, event, seat, &mut broken);
            }
        }
        judge_refusal(state, command, outcome, now, &mut broken);
        broken
    }

    fn judge_hold(
        &mut self,
        state: &State,
        hold: &Hold,
        kind: Kind,
        now: Timestamp,
        broken: &mut Vec<Broken>,
    ) {
        let before = self.holds.insert(hold.id, hold.clone());
        // A lowered limit takes nothing away, and a late payment is a sale all the same; but nobody is granted more.
        let grew = units(&hold.items) > before.as_ref().map_or(0, |before| units(&before.items));
        let event = state.event(hold.event).expect("a hold has an event");
        let has = hold.holder.as_ref().and_then(|holder| event.units_of(holder)).unwrap_or(0);
        if grew && hold.keeps_items() && has > u64::from(event.policy.units_per_holder_max) {
            broken
                .push(Broken { invariant: "I12", what: format!("{} went beyond the limit: {has}", hold.id) });
        }
        // A lowered limit ends no payment; but none begins beyond it.
        let (paying, limit) = (event.payments_in_flight(), event.policy.payments_in_flight_max);
        if kind == Kind::PaymentBegun && limit > 0 && paying > limit {
            let what = format!("{} is paid for beyond the limit: {paying}", hold.id);
            broken.push(Broken { invariant: "I19", what });
        }
        let Some(before) = before else { return };
        // A hold that is kept at its payment's deadline ends with its life, when the payment has failed.
        let until = before.kept_until().map_or(before.live_until(), |_| before.life_end);
        if kind == Kind::HoldExpired && now < until {
            broken.push(Broken { invariant: "I15", what: format!("{} expired early", hold.id) });
        }
        if kind == Kind::BookingCreated && before.keeps_items() && !before.is_live(now) {
            broken.push(Broken { invariant: "I6", what: format!("{} was sold after its end", hold.id) });
        }
        // What has ended gives nothing back again. A late payment may still make a sale of what ended without one.
        let revived = kind == Kind::BookingCreated
            && before.state != HoldState::Confirmed
            && hold.state == HoldState::Confirmed;
        if !before.keeps_items() && !revived && (ends_a_hold(kind) || hold.state != before.state) {
            let what = format!("{} was {:?} and is {:?} by {kind:?}", hold.id, before.state, hold.state);
            broken.push(Broken { invariant: "I8", what });
        }
    }

    fn judge_seat(&mut self, state: &State, event: EventNo, seat: SeatNo, broken: &mut Vec<Broken>) {
        let now = state.event(event).expect("touched seats have events").seat(seat);
        let owner = match now.owner {
            Owner::Free => None,
            Owner::Hold(slot) => state.hold_at(slot).map(|hold| hold.id.as_raw()),
            Owner::Booking(slot) => state.booking_at(slot).map(|booking| booking.hold.as_raw()),
            Owner::Block(slot) => state.block_at(slot).map(|block| block.id.as_raw()),
        };
        let (last, fence) = self.seats.get(&(event, seat)).copied().unwrap_or((None, Fence(0)));
        let grew = now.fence > fence;
        let passed_on = owner.is_some() && owner != last;
        if now.fence < fence || (passed_on && !grew) {
            broken.push(Broken {
                invariant: "I4",
                what: format!("{seat:?}: fence {fence:?} then {:?}", now.fence),
            });
        }
        self.seats.insert((event, seat), (owner.or(last), now.fence));
    }
}

fn ends_a_hold(kind: Kind) -> bool {
    matches!(kind, Kind::HoldExpired | Kind::HoldReleased | Kind::HoldRevoked)
}

/// Nobody is refused for want of something that was there.
fn judge_refusal(
    state: &State,
    command: &Command,
    outcome: &Result<Reply, Refusal>,
    now: Timestamp,
    broken: &mut Vec<Broken>,
) {
    let Err(refusal) = outcome else { return };
    let due = state.next_due().is_some_and(|due| due <= now);
    let falsely = match refusal {
        Refusal::NotYet => !due,
        Refusal::NotTogether { .. } => due || are_together(state, command, now),
        Refusal::PoolShort { pool, available, .. } => {
            due || asked(state, command).is_none_or(|(event, items)| {
                event.pools()[pool.0 as usize].free() != *available || units_of(items, *pool) <= *available
            })
        }
        Refusal::HolderLimit { has, limit } => is_within_limit(state, command, *has, *limit, due),
        Refusal::PaymentsBusy => due || is_place_to_pay(state, command),
        Refusal::CapacityInUse { pool, in_use } => due || !is_too_small(state, command, *pool, *in_use),
        Refusal::SeatsTaken(seats) => {
            seats.is_empty()
                || asked(state, command).is_none_or(|(event, items)| {
                    seats.iter().any(|&seat| {
                        !items.contains(&ItemRequest::Seat(seat)) || is_free(state, event, seat, now)
                    })
                })
        }
        _ => false,
    };
    if falsely {
        broken.push(Broken { invariant: "I16", what: format!("{refusal:?}, and it was there or due") });
    }
}

/// Whether one more payment may begin in the event of the hold that a command wants to be paid for.
fn is_place_to_pay(state: &State, command: &Command) -> bool {
    let Command::BeginPayment(begin) = command else { return true };
    let event = state.hold(begin.hold).and_then(|hold| state.event(hold.event));
    event.is_none_or(|event| {
        let limit = event.policy.payments_in_flight_max;
        limit == 0 || event.payments_in_flight() < limit
    })
}

/// Whether a command wants to make a pool smaller than what is in use of it, which is this much.
fn is_too_small(state: &State, command: &Command, pool: PoolNo, in_use: u32) -> bool {
    let Command::UpdateEvent(update) = command else { return false };
    let wanted = update.patch.capacities.iter().find(|(wanted, _)| *wanted == pool);
    let known = state.event(update.event).and_then(|event| event.pools().get(pool.0 as usize));
    known.is_some_and(|known| known.in_use() == in_use)
        && wanted.is_some_and(|(_, capacity)| *capacity < in_use)
}

/// Whether a holder who was told that it has so many may have what its command asks for, now or as soon as what is due
/// has ended.
fn is_within_limit(state: &State, command: &Command, told: u64, limit: u32, due: bool) -> bool {
    let amended = match command {
        Command::AmendHold(amend) => state.hold(amend.hold),
        _ => None,
    };
    let (holder, removed) = match command {
        Command::CreateHold(create) => (create.holder.as_ref(), [].as_slice()),
        Command::AmendHold(amend) => (amended.and_then(|hold| hold.holder.as_ref()), amend.remove.as_slice()),
        _ => return true,
    };
    let Some((event, items)) = asked(state, command) else { return true };
    let Some(has) = holder.and_then(|holder| event.units_of(holder)) else { return true };
    let (more, may_have) = (units_asked(items), u64::from(limit) + units_asked(removed));
    let is_told_wrong = (told, limit) != (has, event.policy.units_per_holder_max);
    is_told_wrong || has + more <= may_have || (due && more <= may_have)
}

/// Seats and units in a list of wishes, together.
fn units_asked(items: &[ItemRequest]) -> u64 {
    let units = items.iter().map(|item| match *item {
        ItemRequest::Seat(_) => 1,
        ItemRequest::Pool(_, quantity) => u64::from(quantity),
        ItemRequest::Best { count, .. } => u64::from(count),
    });
    units.sum()
}

/// The items a command asks for, and of which event.
fn asked<'a>(state: &'a State, command: &'a Command) -> Option<(&'a Event, &'a [ItemRequest])> {
    let (event, items) = match command {
        Command::CreateHold(create) => (create.event, &create.items),
        Command::AmendHold(amend) => (state.hold(amend.hold)?.event, &amend.add),
        Command::CreateBlock(create) => (create.event, &create.items),
        _ => return None,
    };
    Some((state.event(event)?, items))
}

/// Whether the seats together that a command asks for are there. Only of a command that asks for such seats once: of
/// several, each takes from what is left for the next.
fn are_together(state: &State, command: &Command, now: Timestamp) -> bool {
    let Some((event, items)) = asked(state, command) else { return true };
    let best = items.iter().filter_map(|item| match *item {
        ItemRequest::Best { count, section } => Some((count, section)),
        ItemRequest::Seat(_) | ItemRequest::Pool(..) => None,
    });
    let best: Vec<_> = best.collect();
    let &[(count, wanted)] = best.as_slice() else { return best.is_empty() };
    let is_there =
        |seat: SeatNo| is_free(state, event, seat, now) && !items.contains(&ItemRequest::Seat(seat));
    let longest = |row: &Row| {
        let (mut run, mut longest) = (0, 0);
        for seat in row.seats.clone().map(SeatNo) {
            run = if is_there(seat) { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        longest
    };
    event.layout.sections().iter().enumerate().any(|(number, section)| {
        let rows = &event.layout.rows()[section.rows.start as usize..section.rows.end as usize];
        let is_wanted = wanted.is_none_or(|wanted| wanted.0 as usize == number);
        is_wanted && rows.iter().map(longest).sum::<u32>() >= count
    })
}

fn units_of(items: &[ItemRequest], pool: PoolNo) -> u32 {
    let of = |item: &ItemRequest| match *item {
        ItemRequest::Pool(of, quantity) if of == pool => quantity,
        _ => 0,
    };
    items.iter().map(of).sum()
}

fn is_free(state: &State, event: &Event, seat: SeatNo, now: Timestamp) -> bool {
    match event.seat(seat).owner {
        Owner::Free => true,
        Owner::Hold(slot) => state.hold_at(slot).is_none_or(|hold| !hold.is_live(now)),
        Owner::Booking(_) | Owner::Block(_) => false,
    }
}
