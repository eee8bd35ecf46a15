//! The numbers of an event add up, and agree with the sales that were acknowledged.

use std::collections::BTreeMap;

use leasehold_api::{Availability, CreateEvent, EventView, ItemView, PatchEvent, PatchHold, PoolView};

use super::{Findings, Rule, blocks, held, patches};
use crate::endings::carries_secret;
use crate::facts::{Facts, HoldFact, Micros};
use crate::route::Route;

/// How many units are sold, or blocked, at least and at most.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) least: u64,
    pub(super) most: u64,
}

/// Sold units of an event: under the empty name those of its seats, under a pool's name the pool's.
type SoldUnits = BTreeMap<String, Bounds>;

pub(super) fn check(facts: &Facts, findings: &mut Findings) {
    let reads = facts.operations.iter().enumerate().filter(|(index, _)| facts.is_final(*index));
    for (_, operation) in reads {
        let Some(answer) = operation.answer().filter(|answer| answer.is_success()) else { continue };
        match Route::of(&operation.request) {
            Route::GetEvent(event) => match answer.view::<EventView>() {
                Some(view) => {
                    check_event(facts, &view, findings);
                    held::check_event(facts, operation, &view, findings);
                    blocks::check_event(facts, &view, findings);
                    patches::check_event(facts, &view, findings);
                }
                None => findings.report(Rule::CheckComplete, format!("event {event} is not an event view")),
            },
            Route::GetAvailability(event) => match answer.view::<Availability>() {
                Some(view) => check_letters(&view, findings),
                None => {
                    findings.report(Rule::CheckComplete, format!("availability of {event} cannot be read"))
                }
            },
            _ => {}
        }
    }
}

fn check_event(facts: &Facts, view: &EventView, findings: &mut Findings) {
    let seats = &view.seats;
    let parts = [seats.free, seats.held, seats.sold, seats.blocked];
    let sum: u64 = parts.iter().copied().map(u64::from).sum();
    if sum != u64::from(seats.total) {
        let message =
            format!("event {}: free, held, sold, blocked {parts:?} are not {}", view.id, seats.total);
        findings.report(Rule::CountersAdd, message);
    }
    let sold = sold_units(facts, &view.id);
    let of = |name: &str| sold.get(name).copied().unwrap_or_default();
    check_bounds(&format!("the seats of {}", view.id), "sold", u64::from(seats.sold), of(""), findings);
    for pool in &view.pools {
        let name = format!("pool {} of {}", pool.id, view.id);
        let parts = [pool.free, pool.held, pool.sold, pool.blocked];
        let sum: u64 = parts.iter().copied().map(u64::from).sum();
        if sum != u64::from(pool.capacity) {
            let message = format!("{name}: free, held, sold, blocked {parts:?} are not {}", pool.capacity);
            findings.report(Rule::CountersAdd, message);
        }
        check_bounds(&name, "sold", u64::from(pool.sold), of(&pool.id), findings);
        check_never_over(facts, view, &pool.id, capacity_most(facts, view, pool), findings);
    }
}

pub(super) fn check_bounds(name: &str, how: &str, shown: u64, bounds: Bounds, findings: &mut Findings) {
    let Bounds { least, most } = bounds;
    if shown < least || shown > most {
        let message = format!("{name}: {shown} are shown as {how}, acknowledged were {least} to {most}");
        findings.report(Rule::CountersAdd, message);
    }
}

/// The most units the pool can ever have had.
fn capacity_most(facts: &Facts, view: &EventView, pool: &PoolView) -> u64 {
    let asked = facts.operations.iter().filter(|operation| operation.may_have_taken_effect());
    let asked = asked.filter_map(|operation| match Route::of(&operation.request) {
        Route::CreateEvent => {
            let asked: CreateEvent = serde_json::from_slice(&operation.request.body).ok()?;
            let pools = asked.pools.into_iter().filter(|_| asked.id == view.id);
            pools.filter(|asked| asked.id == pool.id).map(|asked| asked.capacity).max()
        }
        Route::PatchEvent(event) if event == view.id => {
            let asked: PatchEvent = serde_json::from_slice(&operation.request.body).ok()?;
            asked.pools.into_iter().filter(|asked| asked.id == pool.id).map(|asked| asked.capacity).max()
        }
        _ => None,
    });
    asked.chain([pool.capacity]).max().unwrap_or_default().into()
}

fn sold_units(facts: &Facts, event: &str) -> SoldUnits {
    let mut units = SoldUnits::new();
    for booking in facts.bookings.values().filter(|booking| booking.view.event == event) {
        let id = &booking.view.booking_id;
        let maybe_cancelled = facts.cancel_invoked(id).is_some();
        let cancelled = facts.cancels(id).any(|operation| operation.acknowledged());
        for (name, quantity) in quantities(&booking.view.items) {
            let sold = units.entry(name).or_default();
            sold.least += if maybe_cancelled { 0 } else { quantity };
            sold.most += if cancelled { 0 } else { quantity };
        }
    }
    for hold in facts.holds.values().filter(|hold| hold.event == event) {
        if maybe_sold(facts, hold) {
            for (name, quantity) in quantities(&hold.alive.items).into_iter().chain(maybe_added(facts, hold))
            {
                units.entry(name).or_default().most += quantity;
            }
        }
    }
    units
}

/// A confirm without an answer, of a hold that has no acknowledged booking.
fn maybe_sold(facts: &Facts, hold: &HoldFact) -> bool {
    !facts.sold_holds.contains(&hold.id)
        && facts.about_hold(&hold.id).any(|(_, operation)| {
            matches!(Route::of(&operation.request), Route::ConfirmHold(_))
                && operation.may_have_taken_effect()
                && carries_secret(operation, hold)
        })
}

/// What was asked to be added to a hold and got no answer.
fn maybe_added(facts: &Facts, hold: &HoldFact) -> Vec<(String, u64)> {
    let open = facts.about_hold(&hold.id).filter(|(_, operation)| {
        matches!(Route::of(&operation.request), Route::PatchHold(_))
            && operation.may_have_taken_effect()
            && !operation.acknowledged()
    });
    let asked = open.filter_map(|(_, op)| serde_json::from_slice::<PatchHold>(&op.request.body).ok());
    asked.flat_map(|asked| held::units_of(&asked.add)).collect()
}

pub(super) fn quantities(items: &[ItemView]) -> Vec<(String, u64)> {
    let quantity = |item: &ItemView| match &item.pool {
        Some(pool) => (pool.clone(), u64::from(item.quantity.unwrap_or(1))),
        None => (String::new(), 1),
    };
    items.iter().map(quantity).collect()
}

/// At no instant are more units sold, or held for certain, than there are.
fn check_never_over(facts: &Facts, view: &EventView, pool: &str, capacity: u64, findings: &mut Findings) {
    let mut steps: Vec<(Micros, i64)> = Vec::new();
    let mut between = |from: Micros, until: Micros, quantity: u64| {
        let quantity = i64::try_from(quantity).unwrap_or(i64::MAX);
        steps.push((from, quantity));
        steps.push((until.max(from), -quantity));
    };
    let untouched = |hold: &&HoldFact| hold.event == view.id && facts.ending_invoked(hold).is_none();
    for hold in facts.holds.values().filter(untouched) {
        let quantity = hold.pools.get(pool).copied().unwrap_or_default();
        between(hold.created_at, hold.lives_until(), quantity);
    }
    for booking in facts.bookings.values().filter(|booking| booking.view.event == view.id) {
        if facts.cancel_invoked(&booking.view.booking_id).is_none() {
            let units = quantities(&booking.view.items);
            let quantity = units.iter().filter(|(name, _)| name == pool).map(|(_, quantity)| quantity).sum();
            between(booking.booked_at, Micros::MAX, quantity);
        }
    }
    // At one instant what ends comes before what begins.
    steps.sort_unstable();
    let (mut now, mut highest) = (0_i64, 0_i64);
    for (_, step) in steps {
        now += step;
        highest = highest.max(now);
    }
    if highest > i64::try_from(capacity).unwrap_or(i64::MAX) {
        let message = format!("pool {pool} of {} had {highest} units out, of {capacity}", view.id);
        findings.report(Rule::CountersAdd, message);
    }
}

fn check_letters(view: &Availability, findings: &mut Findings) {
    let counts = &view.counts;
    if let Some(letters) = &view.seats {
        let of = |letter: char| letters.chars().filter(|&found| found == letter).count();
        let shown = [of('f'), of('h'), of('s'), of('b')];
        let told = [counts.free, counts.held, counts.sold, counts.blocked].map(|count| count as usize);
        if shown != told || letters.chars().count() != counts.total as usize {
            let message = format!("availability of {}: letters {shown:?}, counts {told:?}", view.event);
            findings.report(Rule::CountersAdd, message);
        }
    }
}
