//! The verdict: what the users were told against what the server says it sold.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use leasehold_api::Code;

use super::args::{Confirming, Shape};
use super::event::{Offer, Snapshot};
use super::report::thousands;
use super::tally::{Class, Outcome, Tally};
use super::told::{Ending, Grant, Told};

/// How many seats a complaint names.
const NAMED_MAX: usize = 5;

/// All that the verdict rests on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence<'a> {
    /// What was fought for.
    pub(crate) offer: &'a Offer,
    /// How the users chose.
    pub(crate) shape: Shape,
    /// Whether they bought what they held.
    pub(crate) confirming: Confirming,
    /// The event before the run.
    pub(crate) before: &'a Snapshot,
    /// The event after it, or why it could not be read.
    pub(crate) after: Result<&'a Snapshot, &'a anyhow::Error>,
    /// What the users were told.
    pub(crate) told: &'a Told,
    /// Every request and its outcome.
    pub(crate) tally: &'a Tally,
}

/// Whether the server kept its promises.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Verdict {
    /// True when there is nothing to complain about.
    pub(crate) passed: bool,
    /// True when something was sold twice, or more was sold than there is.
    pub(crate) oversold: bool,
    /// Answers of 500 and above, other than a 503 `overloaded` or `outcome-unknown`.
    pub(crate) server_errors: u64,
    /// How much was sold, in words: `exactly 3 of 3 seats sold`.
    pub(crate) sold: String,
    /// What was wrong, one sentence each.
    pub(crate) complaints: Vec<String>,
}

/// Complaints as they are found.
#[derive(Default)]
struct Findings {
    oversold: bool,
    complaints: Vec<String>,
}

impl Verdict {
    /// Compares what the users were told with what the server says.
    pub(crate) fn reach(evidence: &Evidence<'_>) -> Self {
        let mut findings = Findings::default();
        findings.check_sold_twice(evidence);
        findings.check_held_twice(evidence);
        findings.check_held_at_once(evidence);
        findings.check_refused_sales(evidence);
        let server_errors = findings.check_answers(evidence);
        match evidence.after {
            Ok(after) => {
                findings.check_seats(evidence, after);
                findings.check_counts(after);
                findings.check_pool(evidence, after);
                findings.check_undersold(evidence, after);
            }
            Err(error) => findings.complain(format!("the event could not be read after the run: {error:#}")),
        }
        Self {
            passed: findings.complaints.is_empty(),
            oversold: findings.oversold,
            server_errors,
            sold: sold_in_words(evidence),
            complaints: findings.complaints,
        }
    }

    /// Passed or failed, and what was sold.
    pub(crate) fn headline(&self) -> String {
        format!("{}: {}", if self.passed { "PASSED" } else { "FAILED" }, self.sold)
    }

    /// Whether too much was sold, and how many server errors there were.
    pub(crate) fn subline(&self) -> String {
        let oversold = if self.oversold { "OVERSOLD" } else { "no oversell seen" };
        let errors = match self.server_errors {
            1 => "1 server error".to_owned(),
            errors => format!("{} server errors", thousands(errors)),
        };
        format!("{oversold}, {errors}")
    }
}

impl Findings {
    fn complain(&mut self, complaint: String) {
        self.complaints.push(complaint);
    }

    fn check_sold_twice(&mut self, evidence: &Evidence<'_>) {
        let mut seen = BTreeSet::new();
        let twice: BTreeSet<&str> = evidence.told.seats_sold().filter(|seat| !seen.insert(*seat)).collect();
        if !twice.is_empty() {
            self.oversold = true;
            self.complain(format!("sold to two buyers: {}", named(&twice)));
        }
        let foreign = evidence.told.grants.iter().filter(|grant| match &grant.ending {
            Ending::Sold(items) => {
                items.iter().any(|item| !grant.items.iter().any(|held| same_thing(held, item)))
            }
            Ending::Kept | Ending::Refused { .. } | Ending::Unresolved => false,
        });
        let foreign = foreign.count();
        if foreign > 0 {
            self.complain(format!("{foreign} bookings contain what their holds did not"));
        }
    }

    /// A seat's fence grows each time it changes hands, so no two holds may have the same one.
    fn check_held_twice(&mut self, evidence: &Evidence<'_>) {
        let mut holds: HashMap<(&str, u64), &str> = HashMap::new();
        let mut twice = BTreeSet::new();
        for grant in &evidence.told.grants {
            for item in &grant.items {
                let (Some(seat), Some(fence)) = (item.seat.as_deref(), item.fence) else { continue };
                let other = holds.insert((seat, fence), &grant.hold_id);
                if other.is_some_and(|other| other != grant.hold_id) {
                    twice.insert(seat);
                }
            }
        }
        if !twice.is_empty() {
            self.complain(format!("held by two buyers under one fence: {}", named(&twice)));
        }
    }

    /// At no instant has a seat two holds, whatever their fences are. One whose sale was refused may have ended before
    /// that, so it counts for nothing here: the refusal itself is complained of.
    fn check_held_at_once(&mut self, evidence: &Evidence<'_>) {
        let lasting = |grant: &&Grant| !matches!(grant.ending, Ending::Refused { .. });
        let mut grants: Vec<&Grant> = evidence.told.grants.iter().filter(lasting).collect();
        grants.sort_by_key(|grant| grant.told);
        let mut taken_until: HashMap<&str, Duration> = HashMap::new();
        let mut at_once = BTreeSet::new();
        for grant in grants {
            for seat in grant.items.iter().filter_map(|item| item.seat.as_deref()) {
                let until = taken_until.entry(seat).or_default();
                if grant.told < grant.lives_until.min(*until) {
                    at_once.insert(seat);
                }
                *until = grant.lives_until.max(*until);
            }
        }
        if !at_once.is_empty() {
            self.complain(format!("held by two buyers at once: {}", named(&at_once)));
        }
    }

    /// A hold is there to be bought: before its time is over only an operator could end it.
    fn check_refused_sales(&mut self, evidence: &Evidence<'_>) {
        let alive = evidence
            .told
            .grants
            .iter()
            .filter(|grant| matches!(grant.ending, Ending::Refused { told } if told < grant.lives_until));
        let items = alive.flat_map(|grant| &grant.items);
        let refused: BTreeSet<&str> =
            items.filter_map(|item| item.seat.as_deref().or(item.pool.as_deref())).collect();
        if !refused.is_empty() {
            self.complain(format!("held, and refused to be sold in time: {}", named(&refused)));
        }
    }

    fn check_seats(&mut self, evidence: &Evidence<'_>, after: &Snapshot) {
        let acknowledged: BTreeSet<&str> = evidence.told.seats_sold().collect();
        let in_doubt: BTreeSet<&str> = evidence.told.seats_unresolved().collect();
        let lost: BTreeSet<&str> = acknowledged.iter().copied().filter(|seat| !after.is_sold(seat)).collect();
        if !lost.is_empty() {
            self.complain(format!("acknowledged as sold, and not sold on the server: {}", named(&lost)));
        }
        let sold_now = after
            .letters
            .keys()
            .map(String::as_str)
            .filter(|seat| after.is_sold(seat) && !evidence.before.is_sold(seat));
        let unclaimed: BTreeSet<&str> =
            sold_now.filter(|seat| !acknowledged.contains(seat) && !in_doubt.contains(seat)).collect();
        if !unclaimed.is_empty() {
            self.complain(format!("sold on the server, and to none of the users: {}", named(&unclaimed)));
        }
    }

    fn check_counts(&mut self, after: &Snapshot) {
        let (counts, other) = (after.seats, after.availability);
        let letters = after.letters.values().filter(|letter| **letter == 's').count();
        if counts.sold != other.sold || counts.sold as usize != letters {
            self.complain(format!(
                "the server contradicts itself: {} seats sold by the event, {} by the availability, {letters} by its map",
                counts.sold, other.sold
            ));
        }
        if counts.sold > counts.total {
            self.oversold = true;
            self.complain(format!("{} seats sold of {}", counts.sold, counts.total));
        }
        let parts = [counts.free, counts.held, counts.sold, counts.blocked];
        let sum: u64 = parts.into_iter().map(u64::from).sum();
        if sum != u64::from(counts.total) {
            self.complain(format!(
                "free, held, sold and blocked seats are {sum}, and there are {}",
                counts.total
            ));
        }
    }

    fn check_pool(&mut self, evidence: &Evidence<'_>, after: &Snapshot) {
        let Some(id) = &evidence.offer.pool else { return };
        let (Some(before), Some(after)) = (evidence.before.pool(id), after.pool(id)) else {
            self.complain(format!("the pool `{id}` is gone"));
            return;
        };
        if u64::from(after.sold) + u64::from(after.held) > u64::from(after.capacity) {
            self.oversold = true;
            self.complain(format!(
                "{} units sold and {} held of {} in `{id}`",
                after.sold, after.held, after.capacity
            ));
        }
        let acknowledged = evidence.told.units_sold(id);
        if acknowledged + u64::from(before.sold) > u64::from(after.capacity) {
            self.oversold = true;
            self.complain(format!(
                "{acknowledged} units of `{id}` acknowledged as sold, of {}",
                after.capacity
            ));
        }
        let sold = u64::from(after.sold).saturating_sub(before.sold.into());
        let possible = acknowledged + evidence.told.units_unresolved(id);
        if sold < acknowledged || sold > possible {
            self.complain(format!("{sold} units of `{id}` sold on the server, {acknowledged} acknowledged"));
        }
    }

    /// When somebody asked for every seat and nothing went wrong on the way to the sale, none may be left.
    fn check_undersold(&mut self, evidence: &Evidence<'_>, after: &Snapshot) {
        let told = evidence.told;
        let all_sold = told.grants.iter().all(|grant| matches!(grant.ending, Ending::Sold(_)));
        let expected = evidence.shape == Shape::Hot
            && evidence.confirming == Confirming::Always
            && told.every_seat_decided
            && told.holds_unresolved == 0
            && all_sold;
        let left: BTreeSet<&str> = evidence.offer.seats.iter().map(String::as_str).collect();
        let left: BTreeSet<&str> = left.into_iter().filter(|seat| !after.is_sold(seat)).collect();
        if expected && !left.is_empty() {
            self.complain(format!("refused to everybody, and not sold: {}", named(&left)));
        }
    }

    fn check_answers(&mut self, evidence: &Evidence<'_>) -> u64 {
        let tally = evidence.tally;
        let server_errors = tally.count_where(|_, outcome| outcome.is_server_error());
        if server_errors > 0 {
            self.complain(format!("{server_errors} answers were server errors"));
        }
        let unexpected = tally.count_where(|_, outcome| is_unexpected(outcome));
        if unexpected > 0 {
            self.complain(format!("{unexpected} answers make no sense for these requests"));
        }
        let decided = |outcome: Outcome| matches!(outcome, Outcome::Answered { status: 200..300 | 409, .. });
        if tally.count_where(|_, outcome| decided(outcome)) == 0 {
            self.complain("no request was granted or refused: nothing was tested".to_owned());
        }
        let unresolved = evidence.told.holds_unresolved + evidence.told.unresolved().count() as u64;
        if unresolved > 0 {
            self.complain(format!("{unresolved} requests have no known outcome, also after repeating them"));
        }
        if evidence.told.unreadable > 0 {
            self.complain(format!("{} grants could not be read", evidence.told.unreadable));
        }
        server_errors
    }
}

/// Refusals that a correct server has no reason for.
fn is_unexpected(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Answered { code: Some(Code::LimitPerHolder), .. } => false,
        Outcome::Answered { status, .. } => outcome.class() == Class::Refused && !matches!(status, 409 | 410),
        Outcome::Unreachable | Outcome::Unknown => false,
    }
}

fn same_thing(held: &leasehold_api::ItemView, sold: &leasehold_api::ItemView) -> bool {
    held.seat == sold.seat && held.pool == sold.pool
}

fn sold_in_words(evidence: &Evidence<'_>) -> String {
    let sales = evidence.told.seats_sold().count();
    let Ok(after) = evidence.after else {
        return format!("{} seats acknowledged as sold", thousands(sales as u64));
    };
    let offered = evidence.offer.seats.len();
    let sold = evidence.offer.seats.iter().filter(|seat| after.is_sold(seat)).count();
    let seats = match (sales > offered, sold == offered) {
        (true, _) => format!("{} sales of {} seats", thousands(sales as u64), thousands(offered as u64)),
        (false, true) => {
            format!("exactly {} of {} seats sold", thousands(sold as u64), thousands(offered as u64))
        }
        (false, false) => format!("{} of {} seats sold", thousands(sold as u64), thousands(offered as u64)),
    };
    let Some(pool) = evidence.offer.pool.as_deref().and_then(|id| after.pool(id)) else { return seats };
    let units = format!("{} of {} units sold", thousands(pool.sold.into()), thousands(pool.capacity.into()));
    if offered == 0 { units } else { format!("{seats}, {units}") }
}

fn named(seats: &BTreeSet<&str>) -> String {
    let first: Vec<&str> = seats.iter().copied().take(NAMED_MAX).collect();
    let rest = match seats.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{rest}", first.join(", "))
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
