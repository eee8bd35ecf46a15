//! The judge: does a recorded history show anything that must never happen?
//!
//! It believes requests and answers, and nothing else. A request without an answer may have taken effect at
//! any time after it began, so a rule only speaks where every such possibility is excluded: what it reports
//! cannot be explained by bad luck.

mod blocks;
mod counters;
mod fences;
mod held;
mod idempotency;
#[cfg(test)]
mod made;
#[cfg(test)]
mod made_histories;
#[cfg(test)]
mod made_read_backs;
mod owners;
mod patches;
mod recovery;
mod refunds;
mod seats;

use std::time::{Duration, Instant};

use crate::facts::Facts;
use crate::history::{History, Outcome};

/// The longest a check may take before it counts as failed.
const CHECK_TIME_MAX: Duration = Duration::from_secs(120);

/// The promise that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A seat has one sale at a time, and a hold becomes one booking.
    SoldOnce,
    /// A seat has one live hold at a time, and none while it is sold or kept back.
    HeldOnce,
    /// Fences of a seat grow, and none is given twice.
    FencesGrow,
    /// What was acknowledged is there after recovery.
    NothingLost,
    /// A state is explained by something that was asked for, or by time.
    StatesExplained,
    /// One key, one effect, one answer.
    KeysOnce,
    /// Only the secret's owner acts on a hold.
    OwnersOnly,
    /// The numbers add up.
    CountersAdd,
    /// The check itself was complete and quick enough.
    CheckComplete,
}

/// A broken promise, with what shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub rule: Rule,
    /// Which seats, holds and moments show it.
    pub message: String,
}

/// The judgement of a history.
#[derive(Debug)]
pub struct Checked {
    /// The broken promises; empty when all is well.
    pub violations: Vec<Violation>,
    /// How many requests there were.
    pub operations: usize,
    /// How many of them were answered with 2xx.
    pub acknowledged: usize,
    /// How many of them had no answer although they were sent.
    pub unknown: usize,
}

/// Collects violations, and stops the check when it takes too long.
#[derive(Debug)]
pub(crate) struct Findings {
    violations: Vec<Violation>,
    deadline: Instant,
    late: bool,
}

/// Judges a history.
pub fn check(history: &History) -> Checked {
    check_within(history, CHECK_TIME_MAX)
}

/// Judges a history; taking longer than `time_max` is a violation of its own.
pub fn check_within(history: &History, time_max: Duration) -> Checked {
    let mut findings = Findings { violations: Vec::new(), deadline: Instant::now() + time_max, late: false };
    let facts = Facts::of(history);
    seats::check(&facts, &mut findings);
    fences::check(&facts, &mut findings);
    recovery::check(&facts, &mut findings);
    refunds::check(&facts, &mut findings);
    idempotency::check(&facts, &mut findings);
    owners::check(&facts, &mut findings);
    counters::check(&facts, &mut findings);
    if findings.too_late() {
        findings.report(Rule::CheckComplete, format!("the check took longer than {time_max:?}"));
    }
    let unknown = |outcome: &Outcome| matches!(outcome, Outcome::NoAnswer);
    Checked {
        violations: findings.violations,
        operations: facts.operations.len(),
        acknowledged: facts.operations.iter().filter(|operation| operation.acknowledged()).count(),
        unknown: facts.operations.iter().filter(|operation| unknown(&operation.outcome)).count(),
    }
}

impl Findings {
    fn report(&mut self, rule: Rule, message: String) {
        self.violations.push(Violation { rule, message });
    }

    fn too_late(&mut self) -> bool {
        self.late = self.late || Instant::now() > self.deadline;
        self.late
    }
}

impl Checked {
    /// Panics unless at least `operations_min` requests were answered with 2xx: an idle run proves nothing.
    pub fn assert_meaningful(&self, operations_min: usize) {
        assert!(
            self.acknowledged >= operations_min,
            "only {} of {} requests were acknowledged ({} unknown): too few of {operations_min} to mean anything",
            self.acknowledged,
            self.operations,
            self.unknown,
        );
    }

    /// Panics with the violations if there are any.
    pub fn assert_clean(&self) {
        let shown: Vec<String> = self
            .violations
            .iter()
            .take(20)
            .map(|found| format!("{:?}: {}", found.rule, found.message))
            .collect();
        assert!(self.violations.is_empty(), "{} violations:\n{}", self.violations.len(), shown.join("\n"));
    }

    /// True when this promise was broken.
    pub fn broke(&self, rule: Rule) -> bool {
        self.violations.iter().any(|violation| violation.rule == rule)
    }
}
