//! What was acknowledged is there when everything is read back, in a state that something explains.

use leasehold_api::{BookingView, EventView, HoldView};

use super::{Findings, Rule};
use crate::endings::carries_secret;
use crate::facts::{BookingFact, Facts, HoldFact, Micros, parse_micros};
use crate::history::{Answer, Operation};
use crate::route::Route;

/// How far the server's clock and ours may lie apart, on one machine.
const CLOCK_TOLERANCE: Micros = 1_000_000;

pub(super) fn check(facts: &Facts, findings: &mut Findings) {
    if facts.final_from.is_none() {
        return;
    }
    for hold in facts.holds.values() {
        let reads = facts.about_hold(&hold.id).filter(|(index, operation)| {
            facts.is_final(*index)
                && matches!(Route::of(&operation.request), Route::GetHold(_))
                && carries_secret(operation, hold)
        });
        match found::<HoldView>(&hold.id, reads.map(|(_, operation)| operation), findings) {
            Some((operation, view)) => {
                explain_hold(facts, hold, operation, &view, findings);
                compare_hold(hold, &view, findings);
            }
            None => continue,
        }
    }
    for booking in facts.bookings.values() {
        let id = &booking.view.booking_id;
        let reads = facts.about_booking(id).filter(|(index, operation)| {
            facts.is_final(*index) && matches!(Route::of(&operation.request), Route::GetBooking(_))
        });
        match found::<BookingView>(id, reads.map(|(_, operation)| operation), findings) {
            Some((_, view)) => explain_booking(facts, booking, &view, findings),
            None => continue,
        }
    }
    for event in facts.created_events() {
        let reads = facts.numbered(facts.on_event.get(&event)).filter(|(index, operation)| {
            facts.is_final(*index) && matches!(Route::of(&operation.request), Route::GetEvent(_))
        });
        // What it says is compared in `counters.rs`.
        let _ = found::<EventView>(&event, reads.map(|(_, operation)| operation), findings);
    }
}

/// The last answered read, or a report that there is none, or that it found nothing.
fn found<'a, T: serde::de::DeserializeOwned>(
    id: &str,
    reads: impl Iterator<Item = &'a Operation>,
    findings: &mut Findings,
) -> Option<(&'a Operation, T)> {
    let answered = |operation: &'a Operation| operation.answer().map(|answer| (operation, answer));
    let (operation, answer) = match reads.filter_map(answered).last() {
        Some(read) => read,
        None => {
            findings.report(Rule::CheckComplete, format!("{id} was acknowledged and never read back"));
            return None;
        }
    };
    match answer.view::<T>().filter(|_| Answer::is_success(answer)) {
        Some(view) => Some((operation, view)),
        None => {
            let message = format!("{id} was acknowledged and is gone: the read-back says {}", answer.status);
            findings.report(Rule::NothingLost, message);
            None
        }
    }
}

fn explain_hold(facts: &Facts, hold: &HoldFact, read: &Operation, view: &HoldView, findings: &mut Findings) {
    let invoked = |wanted: fn(&Route<'_>) -> bool, owned: bool| {
        facts.about_hold(&hold.id).filter(|(_, operation)| wanted(&Route::of(&operation.request))).any(
            |(_, operation)| operation.may_have_taken_effect() && (!owned || carries_secret(operation, hold)),
        )
    };
    let acknowledged = |wanted: fn(&Route<'_>) -> bool| {
        facts
            .about_hold(&hold.id)
            .any(|(_, operation)| wanted(&Route::of(&operation.request)) && operation.acknowledged())
    };
    let confirms: fn(&Route<'_>) -> bool = |route| matches!(route, Route::ConfirmHold(_));
    let releases: fn(&Route<'_>) -> bool = |route| matches!(route, Route::ReleaseHold(_));
    let revokes: fn(&Route<'_>) -> bool = |route| matches!(route, Route::RevokeHold(_));
    let sold = facts.sold_holds.contains(&hold.id);

    let complaint = match view.state.as_str() {
        "held" | "confirming" if sold || acknowledged(releases) || acknowledged(revokes) => {
            Some("although its end was acknowledged".to_owned())
        }
        "held" if overdue(facts, read, view) => Some(format!("although it ended at {}", view.expires_at)),
        "held" | "confirming" => None,
        "confirmed" => (!invoked(confirms, true)).then(|| "although nobody asked to confirm it".to_owned()),
        _ if sold => Some("although its sale was acknowledged".to_owned()),
        "released" => {
            (!invoked(releases, true)).then(|| "although its owner never asked for that".to_owned())
        }
        "revoked" => {
            let closed = facts.closings(hold).next().is_some();
            (!closed && !invoked(revokes, false)).then(|| "although no operator asked for that".to_owned())
        }
        "expired" => too_early(facts, hold, read),
        _ => Some("which is no state of a hold".to_owned()),
    };
    if let Some(complaint) = complaint {
        let message = format!("hold {} is {} after recovery, {complaint}", hold.id, view.state);
        findings.report(Rule::StatesExplained, message);
    }
}

/// Every acknowledged change is in it. Only a hold that lives is compared in full: one whose time ran out may be shown as
/// ended before anything was written about that.
fn compare_hold(hold: &HoldFact, view: &HoldView, findings: &mut Findings) {
    let known = &hold.alive;
    if view.version < known.version {
        let message = format!(
            "hold {} is at version {} after recovery, and version {} was acknowledged",
            hold.id, view.version, known.version
        );
        findings.report(Rule::NothingLost, message);
    }
    fn content(view: &HoldView) -> impl PartialEq + '_ {
        (&view.state, &view.items, &view.expires_at, &view.hard_deadline, &view.payment, &view.holder)
    }
    let lives = matches!(view.state.as_str(), "held" | "confirming");
    if lives && view.version == known.version && content(view) != content(known) {
        let message = format!("hold {} is {view:?} after recovery, and {known:?} was acknowledged", hold.id);
        findings.report(Rule::NothingLost, message);
    }
}

/// Shown as held after its end.
fn overdue(facts: &Facts, read: &Operation, view: &HoldView) -> bool {
    let ends = parse_micros(&view.expires_at).unwrap_or(Micros::MAX);
    ends.saturating_add(CLOCK_TOLERANCE) <= facts.wall(read.started)
}

/// Shown as expired before the end it was promised. Payments without an answer may have changed that end.
fn too_early(facts: &Facts, hold: &HoldFact, read: &Operation) -> Option<String> {
    let payment_unknown = facts.about_hold(&hold.id).any(|(_, operation)| {
        let pays = matches!(Route::of(&operation.request), Route::BeginPayment(_) | Route::PaymentFailed(_));
        let answered_alive = operation.answer().and_then(|answer| answer.view::<HoldView>());
        let alive = answered_alive.is_some_and(|view| view.state == "held" || view.state == "confirming");
        pays && operation.may_have_taken_effect() && !alive
    });
    let read_at = facts.wall(read.ended.unwrap_or(read.started)) + CLOCK_TOLERANCE;
    let early = !payment_unknown && read_at < hold.lives_until();
    early.then(|| format!("{} microseconds before the end it was promised", hold.lives_until() - read_at))
}

fn explain_booking(facts: &Facts, booking: &BookingFact, view: &BookingView, findings: &mut Findings) {
    let id = &booking.view.booking_id;
    let cancel_invoked = facts.cancel_invoked(id).is_some();
    let cancelled = facts.cancels(id).any(Operation::acknowledged);
    let complaint = match view.state.as_str() {
        "booked" => cancelled.then_some("although its cancel was acknowledged"),
        "cancelled" => (!cancel_invoked).then_some("although nobody asked to cancel it"),
        _ => Some("which is no state of a booking"),
    };
    if let Some(complaint) = complaint {
        findings.report(
            Rule::StatesExplained,
            format!("booking {id} is {} after recovery, {complaint}", view.state),
        );
    }
    let but_its_end =
        |view: &BookingView| BookingView { state: String::new(), cancelled_at: None, ..view.clone() };
    if but_its_end(view) != but_its_end(&booking.view) {
        let message =
            format!("booking {id} is {view:?} after recovery, and {:?} was acknowledged", booking.view);
        findings.report(Rule::NothingLost, message);
    }
}
