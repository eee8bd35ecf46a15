//! No seat is sold twice, held twice, or held while it is sold; and none of this happens to one that is kept back.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::{Findings, Rule};
use crate::facts::{BlockFact, BookingFact, Facts, HoldFact, Micros, SeatGrant};

/// A seat in its event.
type Seat = (String, String);

/// A hold on one seat, with the first moment at which something could have ended it.
struct Held<'a> {
    hold: &'a HoldFact,
    grant: &'a SeatGrant,
    until: Micros,
    ending: Option<Duration>,
}

pub(super) fn check(facts: &Facts, findings: &mut Findings) {
    let sold = sold_by_seat(facts);
    let held = held_by_seat(facts);
    for (seat, bookings) in &sold {
        sold_twice(facts, seat, bookings, findings);
        if let Some(holds) = held.get(seat) {
            held_while_sold(facts, seat, bookings, holds, findings);
            sold_under_a_hold(seat, bookings, holds, findings);
        }
    }
    for (seat, holds) in &held {
        held_twice(seat, holds, findings);
    }
    for (seat, blocks) in &blocked_by_seat(facts) {
        for block in blocks {
            let sales = sold.get(seat).map(Vec::as_slice).unwrap_or_default();
            sold_while_blocked(facts, seat, block, sales, findings);
            held_while_blocked(
                facts,
                seat,
                block,
                held.get(seat).map(Vec::as_slice).unwrap_or_default(),
                findings,
            );
        }
        blocked_twice(facts, seat, blocks, findings);
        if findings.too_late() {
            return;
        }
    }
    one_booking_a_hold(facts, findings);
}

fn sold_by_seat(facts: &Facts) -> BTreeMap<Seat, Vec<&BookingFact>> {
    let mut sold: BTreeMap<Seat, Vec<&BookingFact>> = BTreeMap::new();
    for booking in facts.bookings.values() {
        for seat in booking.view.items.iter().filter_map(|item| item.seat.clone()) {
            sold.entry((booking.view.event.clone(), seat)).or_default().push(booking);
        }
    }
    sold.values_mut().for_each(|bookings| bookings.sort_by_key(|booking| booking.booked_at));
    sold
}

fn held_by_seat(facts: &Facts) -> BTreeMap<Seat, Vec<Held<'_>>> {
    let mut held: BTreeMap<Seat, Vec<Held<'_>>> = BTreeMap::new();
    for hold in facts.holds.values() {
        let ending = facts.ending_invoked(hold);
        for grant in &hold.grants {
            let seat = (hold.event.clone(), grant.seat.clone());
            held.entry(seat).or_default().push(Held { hold, grant, until: hold.lives_until(), ending });
        }
    }
    held.values_mut().for_each(|holds| holds.sort_by_key(|held| held.hold.created_at));
    held
}

fn blocked_by_seat(facts: &Facts) -> BTreeMap<Seat, Vec<&BlockFact>> {
    let mut blocked: BTreeMap<Seat, Vec<&BlockFact>> = BTreeMap::new();
    for block in facts.blocks.values() {
        for seat in &block.view.seats {
            blocked.entry((block.view.event.clone(), seat.clone())).or_default().push(block);
        }
    }
    blocked.values_mut().for_each(|blocks| blocks.sort_by_key(|block| block.created_at));
    blocked
}

/// Two sales need a cancel of the first, asked for before the second was acknowledged.
fn sold_twice(facts: &Facts, seat: &Seat, bookings: &[&BookingFact], findings: &mut Findings) {
    for (place, first) in bookings.iter().enumerate() {
        let first_cancel = facts.cancel_invoked(&first.view.booking_id);
        for second in &bookings[place + 1..] {
            let ended = |cancel: Option<Duration>, by: Duration| cancel.is_some_and(|cancel| cancel < by);
            let tie = first.booked_at == second.booked_at;
            let second_cancel = facts.cancel_invoked(&second.view.booking_id);
            let explained =
                ended(first_cancel, second.acknowledged) || (tie && ended(second_cancel, first.acknowledged));
            if !explained {
                findings.report(
                    Rule::SoldOnce,
                    format!(
                        "seat {} of {} was sold as {} and as {} without a cancel between",
                        seat.1, seat.0, first.view.booking_id, second.view.booking_id
                    ),
                );
            }
        }
        if findings.too_late() {
            return;
        }
    }
}

/// A hold that is certainly alive excludes every other grant of its seat.
fn held_twice(seat: &Seat, holds: &[Held<'_>], findings: &mut Findings) {
    for (place, first) in holds.iter().enumerate() {
        for second in holds[place..].iter().take_while(|second| second.hold.created_at < first.until) {
            if second.hold.id == first.hold.id || !granted_while_alive(first, second) {
                continue;
            }
            findings.report(
                Rule::HeldOnce,
                format!(
                    "seat {} of {} was granted to {} (created {}) while {} lived (created {}, until {})",
                    seat.1,
                    seat.0,
                    second.hold.id,
                    second.hold.created_at,
                    first.hold.id,
                    first.hold.created_at,
                    first.until,
                ),
            );
        }
        if findings.too_late() {
            return;
        }
    }
}

fn granted_while_alive(first: &Held<'_>, second: &Held<'_>) -> bool {
    // A seat added to a hold later has no server time: then only the order of the calls is certain.
    let begun = match (first.grant.since, second.grant.since) {
        (Some(since), Some(granted)) => since <= granted,
        _ => first.grant.acknowledged < second.grant.invoked,
    };
    let dated = second.grant.since.is_some_and(|granted| granted < first.until);
    let untouched = first.ending.is_none_or(|ending| second.grant.acknowledged < ending);
    begun && dated && untouched
}

fn held_while_sold(
    facts: &Facts,
    seat: &Seat,
    bookings: &[&BookingFact],
    holds: &[Held<'_>],
    findings: &mut Findings,
) {
    for booking in bookings {
        let cancel = facts.cancel_invoked(&booking.view.booking_id);
        for held in holds.iter().filter(|held| held.hold.id != booking.view.hold_id) {
            let sold_before = booking.acknowledged < held.grant.invoked;
            let cancelled = cancel.is_some_and(|cancel| cancel < held.grant.acknowledged);
            if sold_before && !cancelled {
                findings.report(
                    Rule::HeldOnce,
                    format!(
                        "seat {} of {} was granted to {} although it was sold as {}",
                        seat.1, seat.0, held.hold.id, booking.view.booking_id
                    ),
                );
            }
        }
        if findings.too_late() {
            return;
        }
    }
}

/// A late payment may revive a hold only where nobody else holds the seat.
fn sold_under_a_hold(seat: &Seat, bookings: &[&BookingFact], holds: &[Held<'_>], findings: &mut Findings) {
    for booking in bookings {
        for held in holds.iter().filter(|held| held.hold.id != booking.view.hold_id) {
            let inside = held.grant.since.is_some_and(|since| since < booking.booked_at)
                && booking.booked_at < held.until;
            let untouched = held.ending.is_none_or(|ending| booking.acknowledged < ending);
            if inside && untouched {
                findings.report(
                    Rule::HeldOnce,
                    format!(
                        "seat {} of {} was sold as {} while {} held it",
                        seat.1, seat.0, booking.view.booking_id, held.hold.id
                    ),
                );
            }
        }
        if findings.too_late() {
            return;
        }
    }
}

/// A seat that is kept back is not sold, and one that is sold is not kept back.
fn sold_while_blocked(
    facts: &Facts,
    seat: &Seat,
    block: &BlockFact,
    bookings: &[&BookingFact],
    findings: &mut Findings,
) {
    let removal = facts.removal_invoked(block);
    for booking in bookings {
        let cancel = facts.cancel_invoked(&booking.view.booking_id);
        let blocked_first = block.created_at < booking.booked_at
            && removal.is_none_or(|removal| booking.acknowledged < removal);
        let sold_first =
            booking.booked_at < block.created_at && cancel.is_none_or(|cancel| block.acknowledged < cancel);
        if blocked_first || sold_first {
            kept_back(seat, block, &format!("sold as {}", booking.view.booking_id), findings);
        }
    }
}

/// A seat that is kept back is not held, and one under a hold that surely lives is not kept back.
fn held_while_blocked(
    facts: &Facts,
    seat: &Seat,
    block: &BlockFact,
    holds: &[Held<'_>],
    findings: &mut Findings,
) {
    let removal = facts.removal_invoked(block);
    for held in holds {
        // A seat added to a hold later has no server time: then only the order of the calls is certain.
        let (blocked_before, held_before) = match held.grant.since {
            Some(since) => (block.created_at < since, since < block.created_at),
            None => (block.acknowledged < held.grant.invoked, held.grant.acknowledged < block.invoked),
        };
        let still_blocked = removal.is_none_or(|removal| held.grant.acknowledged < removal);
        let still_held =
            block.created_at < held.until && held.ending.is_none_or(|ending| block.acknowledged < ending);
        if (blocked_before && still_blocked) || (held_before && still_held) {
            kept_back(seat, block, &format!("held by {}", held.hold.id), findings);
        }
    }
}

fn blocked_twice(facts: &Facts, seat: &Seat, blocks: &[&BlockFact], findings: &mut Findings) {
    for (place, first) in blocks.iter().enumerate() {
        let removal = facts.removal_invoked(first);
        for second in &blocks[place + 1..] {
            let dated = first.created_at < second.created_at;
            if dated && removal.is_none_or(|removal| second.acknowledged < removal) {
                kept_back(seat, first, &format!("kept back by {}", second.view.block_id), findings);
            }
        }
    }
}

fn kept_back(seat: &Seat, block: &BlockFact, otherwise: &str, findings: &mut Findings) {
    let (id, seat, event) = (&block.view.block_id, &seat.1, &seat.0);
    let message = format!("seat {seat} of {event} was kept back by {id} and {otherwise} at the same time");
    findings.report(Rule::HeldOnce, message);
}

fn one_booking_a_hold(facts: &Facts, findings: &mut Findings) {
    let mut by_hold: HashMap<&str, &str> = HashMap::new();
    for booking in facts.bookings.values() {
        let view = &booking.view;
        if let Some(other) = by_hold.insert(&view.hold_id, &view.booking_id) {
            let message =
                format!("hold {} became the bookings {other} and {}", view.hold_id, view.booking_id);
            findings.report(Rule::SoldOnce, message);
        }
    }
}
