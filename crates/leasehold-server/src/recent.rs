//! What an operator wants to know of the last hours and no file keeps: what went wrong. Bounded, in memory, and gone with
//! the process.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::Timestamp;

/// Problems that are remembered.
pub(crate) const TROUBLES_MAX: usize = 200;
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

impl<T: Clone> Recent<T> {
    pub(crate) fn new(max: usize) -> Self {
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
    }
}
