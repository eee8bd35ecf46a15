//! Nothing is held that nobody asked for, and what surely lives is: one request, one effect, also when it was repeated.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use leasehold_api::{CreateHold, EventView, HoldView, ItemSpec, PatchHold};

use super::counters::{Bounds, quantities};
use super::{Findings, Rule};
use crate::facts::{Facts, HoldFact, Micros};
use crate::history::Operation;
use crate::route::Route;

/// How long the numbers may show a hold after its end.
const SWEEP_TOLERANCE: Micros = 5_000_000;

/// Units by name, the seats under the empty name.
type Units = BTreeMap<String, u64>;

/// How far the server's clock and ours may lie apart.
const CLOCK_TOLERANCE: Micros = 1_000_000;

/// Compares what an event shows as held with all holds that could be alive, and with those that surely are.
pub(super) fn check_event(facts: &Facts, read: &Operation, view: &EventView, findings: &mut Findings) {
    let (mut least, mut most) = (Units::new(), Units::new());
    for hold in facts.holds.values().filter(|hold| hold.event == view.id) {
        if surely_lives(facts, hold, read) {
            for (name, units) in units_granted(hold, read) {
                *least.entry(name).or_default() += units;
            }
        }
        if may_live(facts, hold, read.started) {
            for (name, units) in units_held(hold) {
                *most.entry(name).or_default() += units;
            }
        }
    }
    for (name, units) in unanswered(facts, &view.id) {
        *most.entry(name).or_default() += units;
    }
    let of = |units: &Units, name: &str| units.get(name).copied().unwrap_or_default();
    let bounds = |name: &str| Bounds { least: of(&least, name), most: of(&most, name) };
    report(&format!("the seats of {}", view.id), u64::from(view.seats.held), bounds(""), findings);
    for pool in &view.pools {
        let name = format!("pool {} of {}", pool.id, view.id);
        report(&name, u64::from(pool.held), bounds(&pool.id), findings);
    }
}

fn report(name: &str, shown: u64, Bounds { least, most }: Bounds, findings: &mut Findings) {
    if shown > most {
        let message = format!("{name}: {shown} are shown as held, all requests together explain {most}");
        findings.report(Rule::CountersAdd, message);
    }
    if shown < least {
        let message = format!("{name}: {shown} are shown as held, and holds of {least} surely live");
        findings.report(Rule::CountersAdd, message);
    }
}

/// What was granted for certain before the event was read. What was taken away may have ended the hold, and is not asked
/// for here.
fn units_granted(hold: &HoldFact, read: &Operation) -> Units {
    let mut units = hold.pools.clone();
    let seats = hold.grants.iter().filter(|grant| grant.acknowledged < read.started);
    units.insert(String::new(), seats.count() as u64);
    units
}

/// Granted before the event was read, not over until after that, and nobody had begun to end it.
fn surely_lives(facts: &Facts, hold: &HoldFact, read: &Operation) -> bool {
    let Some(read_by) = read.ended else { return false };
    hold.acknowledged < read.started
        && facts.ending_invoked(hold).is_none_or(|ending| read_by < ending)
        && facts.wall(read_by).saturating_add(CLOCK_TOLERANCE) < hold.lives_until()
}

/// The most the hold ever had: what it was granted with, or what it had when it was last seen alive.
fn units_held(hold: &HoldFact) -> Units {
    let mut units: Units = hold.pools.clone();
    for (name, quantity) in quantities(&hold.alive.items).into_iter().filter(|(name, _)| !name.is_empty()) {
        let known = units.entry(name).or_default();
        *known = quantity.max(*known);
    }
    units.insert(String::new(), hold.grants.len() as u64);
    units
}

fn may_live(facts: &Facts, hold: &HoldFact, read: Duration) -> bool {
    let mut prolonged = false;
    for (_, operation) in
        facts.about_hold(&hold.id).filter(|(_, operation)| operation.may_have_taken_effect())
    {
        match Route::of(&operation.request) {
            Route::ReleaseHold(_) | Route::RevokeHold(_) | Route::ConfirmHold(_)
                if operation.acknowledged() =>
            {
                return false;
            }
            Route::PatchHold(_) | Route::BeginPayment(_) | Route::PaymentFailed(_) => {
                let known = operation.answer().and_then(|answer| answer.view::<HoldView>()).is_some();
                prolonged |= !known;
            }
            _ => {}
        }
    }
    prolonged || facts.wall(read) < hold.lives_until().saturating_add(SWEEP_TOLERANCE)
}

/// What requests for items without any answer could have taken, each key once.
fn unanswered(facts: &Facts, event: &str) -> Units {
    let mut open: HashMap<String, Option<Units>> = HashMap::new();
    for (index, operation) in facts.operations.iter().enumerate() {
        let body = &operation.request.body;
        let asked = match Route::of(&operation.request) {
            Route::CreateHold(of) if of == event => {
                serde_json::from_slice::<CreateHold>(body).map(|asked| asked.items).ok()
            }
            Route::PatchHold(_) => serde_json::from_slice::<PatchHold>(body).map(|asked| asked.add).ok(),
            _ => None,
        };
        let Some(asked) = asked.filter(|_| operation.may_have_taken_effect()) else { continue };
        let known = open.entry(operation.key_or(index)).or_insert_with(|| Some(units_of(&asked)));
        if operation.acknowledged() {
            *known = None;
        }
    }
    let mut all = Units::new();
    for (name, units) in open.into_values().flatten().flatten() {
        *all.entry(name).or_default() += units;
    }
    all
}

pub(super) fn units_of(items: &[ItemSpec]) -> Units {
    let mut units = Units::new();
    for item in items {
        let (name, count) = match (&item.pool, &item.best) {
            (Some(pool), _) => (pool.clone(), item.quantity.unwrap_or(1)),
            (None, Some(best)) => (String::new(), best.count),
            (None, None) => (String::new(), 1),
        };
        *units.entry(name).or_default() += u64::from(count);
    }
    units
}
