//! What an operator last changed about an event is what is read back.

use std::fmt::Debug;
use std::time::Duration;

use leasehold_api::{CreateEvent, EventView, PatchEvent, PolicySpec};

use super::{Findings, Rule};
use crate::facts::{Facts, first_invocations};
use crate::route::Route;

/// A value that was asked for, and when it may have come to be.
struct Asked<T> {
    value: T,
    /// From when on: a repetition of a request has the effect of the first one.
    from: Duration,
    /// Until when; `None` when it may still come.
    until: Option<Duration>,
}

pub(super) fn check_event(facts: &Facts, view: &EventView, findings: &mut Findings) {
    let states = asked(facts, &view.id, |_| Some("open".to_owned()), |patch| patch.state.clone());
    check_one(&format!("the state of {}", view.id), &view.state, &states, findings);
    let rules = serde_json::to_value(&view.policy).unwrap_or_default();
    for (rule, shown) in rules.as_object().into_iter().flatten() {
        let of = |policy: &Option<PolicySpec>| serde_json::to_value(policy).ok()?.get(rule).cloned();
        let values = asked(facts, &view.id, |create| of(&create.policy), |patch| of(&patch.policy));
        check_one(&format!("the rule {rule} of {}", view.id), shown, &values, findings);
    }
    for pool in &view.pools {
        let created = |create: &CreateEvent| {
            create.pools.iter().find(|created| created.id == pool.id).map(|created| created.capacity)
        };
        let patched = |patch: &PatchEvent| {
            patch.pools.iter().find(|patched| patched.id == pool.id).map(|patched| patched.capacity)
        };
        let capacities = asked(facts, &view.id, created, patched);
        let name = format!("the capacity of pool {} of {}", pool.id, view.id);
        check_one(&name, &pool.capacity, &capacities, findings);
    }
}

fn asked<T>(
    facts: &Facts,
    event: &str,
    created: impl Fn(&CreateEvent) -> Option<T>,
    patched: impl Fn(&PatchEvent) -> Option<T>,
) -> Vec<Asked<T>> {
    let first_invoked = first_invocations(&facts.operations);
    let may_be =
        facts.operations.iter().enumerate().filter(|(_, operation)| operation.may_have_taken_effect());
    let asked = may_be.filter_map(|(index, operation)| {
        let body = &operation.request.body;
        let value = match Route::of(&operation.request) {
            Route::CreateEvent => created(
                &serde_json::from_slice::<CreateEvent>(body).ok().filter(|create| create.id == event)?,
            )?,
            Route::PatchEvent(patched_event) if patched_event == event => {
                patched(&serde_json::from_slice::<PatchEvent>(body).ok()?)?
            }
            _ => return None,
        };
        let from = first_invoked.get(&index).copied().unwrap_or(operation.started);
        Some(Asked { value, from, until: operation.effect_known_at() })
    });
    asked.collect()
}

/// A value that was there before another one was asked for, which is acknowledged, is there no more.
fn check_one<T: PartialEq + Debug>(name: &str, shown: &T, asked: &[Asked<T>], findings: &mut Findings) {
    let is_replaced = |one: &Asked<T>| {
        one.until.is_some_and(|until| asked.iter().any(|other| other.until.is_some() && until < other.from))
    };
    let left: Vec<&T> = asked.iter().filter(|one| !is_replaced(one)).map(|one| &one.value).collect();
    // Without an acknowledged value the one from before may still be there.
    if asked.iter().any(|one| one.until.is_some()) && !left.contains(&shown) {
        let message = format!("{name} is {shown:?}, and what was last acknowledged or asked for is {left:?}");
        findings.report(Rule::NothingLost, message);
    }
}
