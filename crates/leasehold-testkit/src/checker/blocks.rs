//! What the operator keeps back is kept back: the numbers show every block that was acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_api::{BlockedUnits, CreateBlock, EventView};

use super::Findings;
use super::counters::{Bounds, check_bounds};
use crate::facts::Facts;
use crate::route::Route;

/// Units by name, the seats under the empty name.
type Units = BTreeMap<String, Bounds>;

/// Compares what an event shows as blocked with its blocks.
pub(super) fn check_event(facts: &Facts, view: &EventView, findings: &mut Findings) {
    let blocked = blocked_units(facts, &view.id);
    let of = |name: &str| blocked.get(name).copied().unwrap_or_default();
    let seats = format!("the seats of {}", view.id);
    check_bounds(&seats, "blocked", u64::from(view.seats.blocked), of(""), findings);
    for pool in &view.pools {
        let name = format!("pool {} of {}", pool.id, view.id);
        check_bounds(&name, "blocked", u64::from(pool.blocked), of(&pool.id), findings);
    }
}

fn blocked_units(facts: &Facts, event: &str) -> Units {
    let mut units = Units::new();
    let mut add = |seats: &[String], pools: &[BlockedUnits], least: bool, most: bool| {
        let seats = (String::new(), seats.len() as u64);
        let pools = pools.iter().map(|units| (units.id.clone(), u64::from(units.quantity)));
        for (name, count) in std::iter::once(seats).chain(pools) {
            let bounds = units.entry(name).or_default();
            bounds.least += if least { count } else { 0 };
            bounds.most += if most { count } else { 0 };
        }
    };
    for block in facts.blocks.values().filter(|block| block.view.event == event) {
        let removals = || facts.removals(event, &block.view.block_id);
        let maybe = removals().next().is_some();
        let gone = removals().any(|operation| operation.acknowledged());
        add(&block.view.seats, &block.view.pools, !maybe, !gone);
    }
    let asked = || {
        let on_event = facts.numbered(facts.on_event.get(event));
        on_event.filter(|(_, operation)| matches!(Route::of(&operation.request), Route::CreateBlock(_)))
    };
    let answered = asked().filter(|(_, operation)| operation.acknowledged());
    let mut answered: BTreeSet<String> = answered.map(|(index, operation)| operation.key_or(index)).collect();
    // Each key once, and only if no repetition was answered.
    for (index, operation) in asked().filter(|(_, operation)| operation.may_have_taken_effect()) {
        if answered.insert(operation.key_or(index))
            && let Ok(asked) = serde_json::from_slice::<CreateBlock>(&operation.request.body)
        {
            add(&asked.seats, &asked.pools, false, true);
        }
    }
    units
}
