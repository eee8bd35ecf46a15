//! Only who was given a hold's secret can act on it, or see it.

use super::{Findings, Rule};
use crate::endings::carries_secret;
use crate::facts::Facts;
use crate::route::Route;

pub(super) fn check(facts: &Facts, findings: &mut Findings) {
    for hold in facts.holds.values() {
        if hold.secret.is_none() {
            findings.report(Rule::OwnersOnly, format!("hold {} was granted without a secret", hold.id));
        }
        for (_, operation) in facts.about_hold(&hold.id) {
            let owned = matches!(
                Route::of(&operation.request),
                Route::GetHold(_)
                    | Route::PatchHold(_)
                    | Route::ReleaseHold(_)
                    | Route::BeginPayment(_)
                    | Route::PaymentFailed(_)
                    | Route::ConfirmHold(_)
            );
            if owned && operation.acknowledged() && !carries_secret(operation, hold) {
                let request = &operation.request;
                let message =
                    format!("{} {} was acknowledged without the hold's secret", request.method, request.path);
                findings.report(Rule::OwnersOnly, message);
            }
        }
    }
}
