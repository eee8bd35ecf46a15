//! What may have ended a hold or a sale: everything that was asked for and not surely refused.

use std::time::Duration;

use leasehold_api::HoldView;

use crate::facts::{BlockFact, Facts, HoldFact};
use crate::history::Operation;
use crate::route::Route;

impl Facts {
    /// The first moment at which something that could end the hold was asked for.
    pub(crate) fn ending_invoked(&self, hold: &HoldFact) -> Option<Duration> {
        let by_hold = self.about_hold(&hold.id).filter(|(_, operation)| may_end(operation, hold));
        let by_event = self.closings(hold);
        by_hold.map(|(_, operation)| operation.started).chain(by_event).min()
    }

    /// When somebody asked to close the event of a hold, unless it was done before anybody asked for the hold.
    pub(crate) fn closings(&self, hold: &HoldFact) -> impl Iterator<Item = Duration> {
        let asked_for = hold.invoked;
        let closes = move |operation: &Operation| {
            matches!(Route::of(&operation.request), Route::PatchEvent(_))
                && body_field(operation, "state").as_deref() == Some("closed")
                && operation.may_have_taken_effect()
                && operation.effect_known_at().is_none_or(|known_at| known_at >= asked_for)
        };
        self.numbered(self.on_event.get(&hold.event))
            .filter(move |(_, op)| closes(op))
            .map(|(_, op)| op.started)
    }

    /// The first moment at which a cancel of the booking was asked for.
    pub(crate) fn cancel_invoked(&self, booking: &str) -> Option<Duration> {
        self.cancels(booking).map(|operation| operation.started).min()
    }

    /// The cancels of the booking that may have taken effect.
    pub(crate) fn cancels(&self, booking: &str) -> impl Iterator<Item = &Operation> {
        let cancels = |operation: &Operation| {
            matches!(Route::of(&operation.request), Route::CancelBooking(_))
                && operation.may_have_taken_effect()
        };
        self.about_booking(booking)
            .map(|(_, operation)| operation)
            .filter(move |operation| cancels(operation))
    }

    /// The removals of the block that may have taken effect.
    pub(crate) fn removals(&self, event: &str, block: &str) -> impl Iterator<Item = &Operation> {
        let removes = move |operation: &Operation| {
            matches!(Route::of(&operation.request), Route::RemoveBlock(_, of) if of == block)
                && operation.may_have_taken_effect()
        };
        self.numbered(self.on_event.get(event))
            .map(|(_, operation)| operation)
            .filter(move |operation| removes(operation))
    }

    /// The first moment at which a removal of the block was asked for.
    pub(crate) fn removal_invoked(&self, block: &BlockFact) -> Option<Duration> {
        self.removals(&block.view.event, &block.view.block_id).map(|operation| operation.started).min()
    }
}

/// True when the operation carried the hold's secret.
pub(crate) fn carries_secret(operation: &Operation, hold: &HoldFact) -> bool {
    operation.request.header(leasehold_api::HOLD_SECRET) == hold.secret.as_deref()
}

/// True when the operation may have ended the hold, or taken some of it away.
fn may_end(operation: &Operation, hold: &HoldFact) -> bool {
    if !operation.may_have_taken_effect() {
        return false;
    }
    match Route::of(&operation.request) {
        Route::ReleaseHold(_) | Route::ConfirmHold(_) => carries_secret(operation, hold),
        Route::PatchHold(_) => carries_secret(operation, hold) && has_body_field(operation, "remove"),
        Route::BeginPayment(_) => carries_secret(operation, hold) && !shows_alive(operation),
        Route::PaymentFailed(_) => !shows_alive(operation),
        Route::RevokeHold(_) => true,
        _ => false,
    }
}

/// An answer that says the hold lives puts its deadline into [`HoldFact::lives_until`].
fn shows_alive(operation: &Operation) -> bool {
    let view = operation.answer().and_then(|answer| answer.view::<HoldView>());
    operation.acknowledged() && view.is_some_and(|view| view.state == "held" || view.state == "confirming")
}

fn body_field(operation: &Operation, field: &str) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(&operation.request.body).ok()?;
    body.get(field)?.as_str().map(str::to_owned)
}

fn has_body_field(operation: &Operation, field: &str) -> bool {
    let body: Option<serde_json::Value> = serde_json::from_slice(&operation.request.body).ok();
    body.is_some_and(|body| body.get(field).is_some())
}
