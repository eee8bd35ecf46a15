//! The fences of a seat grow with every grant, and no two holds ever have the same one.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::{Findings, Rule};
use crate::facts::Facts;

struct Fenced<'a> {
    hold: &'a str,
    fence: u64,
    invoked: Duration,
    acknowledged: Duration,
}

pub(super) fn check(facts: &Facts, findings: &mut Findings) {
    let mut by_seat: BTreeMap<(&str, &str), Vec<Fenced<'_>>> = BTreeMap::new();
    for hold in facts.holds.values() {
        for grant in &hold.grants {
            let Some(fence) = grant.fence else {
                findings.report(
                    Rule::FencesGrow,
                    format!("seat {} of {} came without a fence", grant.seat, hold.id),
                );
                continue;
            };
            let fenced =
                Fenced { hold: &hold.id, fence, invoked: grant.invoked, acknowledged: grant.acknowledged };
            by_seat.entry((&hold.event, &grant.seat)).or_default().push(fenced);
        }
    }
    for booking in facts.bookings.values().filter(|booking| booking.view.revived) {
        for item in &booking.view.items {
            if let (Some(seat), Some(fence)) = (&item.seat, item.fence) {
                let fenced = Fenced {
                    hold: &booking.view.hold_id,
                    fence,
                    invoked: booking.invoked,
                    acknowledged: booking.acknowledged,
                };
                by_seat.entry((&booking.view.event, seat)).or_default().push(fenced);
            }
        }
    }
    for ((event, seat), grants) in &mut by_seat {
        let seat = format!("{seat} of {event}");
        given_twice(&seat, grants, findings);
        grown(&seat, grants, findings);
    }
}

fn given_twice(seat: &str, grants: &[Fenced<'_>], findings: &mut Findings) {
    let mut holds: HashMap<u64, &str> = HashMap::new();
    for grant in grants {
        let other = holds.insert(grant.fence, grant.hold);
        if let Some(other) = other.filter(|other| *other != grant.hold) {
            let message =
                format!("seat {seat}: {other} and {} have the same fence {}", grant.hold, grant.fence);
            findings.report(Rule::FencesGrow, message);
        }
    }
}

/// Walks through the grants as they were asked for, with the highest fence acknowledged before.
fn grown(seat: &str, grants: &mut [Fenced<'_>], findings: &mut Findings) {
    let mut acknowledged: Vec<(Duration, u64, &str)> =
        grants.iter().map(|grant| (grant.acknowledged, grant.fence, grant.hold)).collect();
    acknowledged.sort_unstable();
    grants.sort_by_key(|grant| grant.invoked);
    let mut earlier = acknowledged.into_iter().peekable();
    let mut highest: Option<(u64, &str)> = None;
    for grant in grants.iter() {
        while let Some((_, fence, hold)) = earlier.next_if(|(moment, _, _)| *moment < grant.invoked) {
            highest = highest.max(Some((fence, hold)));
        }
        if let Some((fence, hold)) = highest.filter(|(fence, _)| *fence >= grant.fence) {
            let message =
                format!("seat {seat}: {hold} had fence {fence} before {} got {}", grant.hold, grant.fence);
            findings.report(Rule::FencesGrow, message);
        }
    }
}
