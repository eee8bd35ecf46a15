//! Nothing is held that nobody asked for: one request, one effect, also when it was repeated.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use leasehold_api::{CreateHold, EventView, HoldView, ItemSpec, PatchHold};

use super::counters::quantities;
use super::{Findings, Rule};
use crate::facts::{Facts, HoldFact, Micros};
use crate::history::Operation;
use crate::route::Route;

/// How long the numbers may show a hold after its end.
const SWEEP_TOLERANCE: Micros = 5_000_000;

/// Units by name, the seats under the empty name.
type Units = BTreeMap<String, u64>;

/// Compares what an event shows as held with all holds that could be alive.
pub(super) fn check_event(facts: &Facts, read: &Operation, view: &EventView, findings: &mut Findings) {
    let mut most = Units::new();
    for hold in facts.holds.values().filter(|hold| hold.event == view.id) {
        if may_live(facts, hold, read.started) {
            for (name, units) in units_held(hold) {
                *most.entry(name).or_default() += units;
            }
        }
    }
    for (name, units) in unanswered(facts, &view.id) {
        *most.entry(name).or_default() += units;
    }
    let of = |name: &str| most.get(name).copied().unwrap_or_default();
    report(&format!("the seats of {}", view.id), u64::from(view.seats.held), of(""), findings);
    for pool in &view.pools {
        report(&format!("pool {} of {}", pool.id, view.id), u64::from(pool.held), of(&pool.id), findings);
    }
}

fn report(name: &str, shown: u64, most: u64, findings: &mut Findings) {
    if shown > most {
        let message = format!("{name}: {shown} are shown as held, all requests together explain {most}");
        findings.report(Rule::CountersAdd, message);
    }
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
