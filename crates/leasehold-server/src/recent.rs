//! What an operator wants to know of the last hours and no file keeps: what went wrong, why holds were taken away, and
//! why seats were blocked that are not any more. Bounded, in memory, and gone with the process.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::{EventNo, HoldId, Timestamp};

/// Problems that are remembered.
const PROBLEMS_MAX: usize = 200;
/// Reasons that are remembered.
const REASONS_MAX: usize = 10_000;
/// Characters of a path that are remembered.
const PATH_MAX: usize = 200;

/// The last so many, oldest first.
#[derive(Debug)]
pub(crate) struct Recent<T> {
    things: Mutex<VecDeque<T>>,
    max: usize,
}

/// Something that went wrong: a server error, or an answer that took long.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub(crate) at: Timestamp,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) status: u16,
    /// The problem's code, if it was one.
    pub(crate) code: Option<&'static str>,
    pub(crate) seconds: f64,
    pub(crate) request_id: String,
}

/// Why an operator did something.
#[derive(Debug, Clone)]
pub(crate) struct Reason {
    pub(crate) of: Deed,
    pub(crate) words: String,
}

/// What an operator did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Took this hold away.
    Revoked(HoldId),
    /// Blocked something of this event then.
    Blocked(EventNo, Timestamp),
}

/// Everything recent.
#[derive(Debug)]
pub(crate) struct Recently {
    pub(crate) troubles: Recent<Trouble>,
    pub(crate) reasons: Recent<Reason>,
}

impl Default for Recently {
    fn default() -> Self {
        Self { troubles: Recent::new(PROBLEMS_MAX), reasons: Recent::new(REASONS_MAX) }
    }
}

impl<T: Clone> Recent<T> {
    fn new(max: usize) -> Self {
        Self { things: Mutex::new(VecDeque::new()), max }
    }

    pub(crate) fn add(&self, thing: T) {
        let mut things = self.lock();
        if things.len() == self.max {
            things.pop_front();
        }
        things.push_back(thing);
    }

    /// All of them, the last one first.
    pub(crate) fn all(&self) -> Vec<T> {
        self.lock().iter().rev().cloned().collect()
    }

    /// The last one that fits.
    pub(crate) fn last(&self, fits: impl Fn(&T) -> bool) -> Option<T> {
        self.lock().iter().rev().find(|thing| fits(thing)).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A path, cut where it is longer than anybody wants to read.
pub(crate) fn shortened(path: &str) -> String {
    path.chars().take(PATH_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_ones_are_kept() {
        let recent = Recent::new(3);
        (1..=5).for_each(|number| recent.add(number));
        assert_eq!(recent.all(), [5, 4, 3]);
        assert_eq!(recent.last(|number| number % 2 == 0), Some(4));
        assert_eq!(recent.last(|number| *number == 1), None);
    }
}
