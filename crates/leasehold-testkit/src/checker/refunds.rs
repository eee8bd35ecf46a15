//! Money that is owed stays owed: what was answered with "give it back" is in the list that an operator reads.

use std::collections::BTreeSet;

use leasehold_api::{Code, ConfirmHold, RefundList};

use super::{Findings, Rule};
use crate::facts::Facts;
use crate::route::Route;

pub(super) fn check(facts: &Facts, findings: &mut Findings) {
    if facts.final_from.is_none() {
        return;
    }
    let mut listed: BTreeSet<(String, String)> = BTreeSet::new();
    let mut read: BTreeSet<&str> = BTreeSet::new();
    for (_, operation) in facts.operations.iter().enumerate().filter(|(index, _)| facts.is_final(*index)) {
        let Route::GetRefunds(event) = Route::of(&operation.request) else { continue };
        let Some(answer) = operation.answer().filter(|answer| answer.is_success()) else { continue };
        match answer.view::<RefundList>() {
            Some(page) => {
                read.insert(event);
                listed.extend(page.refunds.into_iter().map(|refund| (refund.hold_id, refund.payment_ref)));
            }
            None => findings.report(Rule::CheckComplete, format!("refunds of {event} cannot be read")),
        }
    }
    for operation in &facts.operations {
        let Route::ConfirmHold(hold) = Route::of(&operation.request) else { continue };
        let code = operation.answer().and_then(|answer| answer.code());
        let asked = serde_json::from_slice::<ConfirmHold>(&operation.request.body).ok();
        let payment = asked.and_then(|asked| asked.payment_ref);
        let (Some(payment), true) = (payment, code.as_deref() == Some(Code::RefundDue.as_str())) else {
            continue;
        };
        let Some(known) = facts.holds.get(hold) else { continue };
        if !read.contains(known.event.as_str()) {
            let message = format!("payment {payment} must be given back, and the list was never read");
            findings.report(Rule::CheckComplete, message);
        } else if !listed.contains(&(hold.to_owned(), payment.clone())) {
            let message = format!("payment {payment} of {hold} must be given back, and is not in the list");
            findings.report(Rule::NothingLost, message);
        }
    }
}
