//! Requests that wait for a lock: how many in all, and how many for each name.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_lock::LockName;
use prometheus_client::metrics::gauge::Gauge;

/// Most requests that wait at a time. Beyond it a lock is asked for once.
const WAITERS_MAX: usize = 4_096;

/// See the module.
#[derive(Debug)]
pub(super) struct Waiting {
    inside: Mutex<Inside>,
    gauge: Gauge,
}

#[derive(Debug, Default)]
struct Inside {
    by_name: HashMap<LockName, u32>,
    count: usize,
}

/// Leave to wait, given back when dropped.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    waiting: &'a Waiting,
    name: LockName,
}

impl Waiting {
    pub(super) fn new(gauge: Gauge) -> Self {
        Self { inside: Mutex::default(), gauge }
    }

    /// Leave to wait for a name; none when too many wait.
    pub(super) fn enter(&self, name: &LockName) -> Option<Waiter<'_>> {
        let mut inside = self.lock();
        if inside.count >= WAITERS_MAX {
            return None;
        }
        inside.count += 1;
        *inside.by_name.entry(name.clone()).or_default() += 1;
        self.gauge.inc();
        Some(Waiter { waiting: self, name: name.clone() })
    }

    /// How many wait for a name.
    pub(super) fn of(&self, name: &LockName) -> u32 {
        self.lock().by_name.get(name).copied().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut inside = self.waiting.lock();
        inside.count -= 1;
        if let Some(count) = inside.by_name.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                inside.by_name.remove(&self.name);
            }
        }
        self.waiting.gauge.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_counted_and_bounded() {
        let waiting = Waiting::new(Gauge::default());
        let (a, b) = (LockName::parse("a").unwrap(), LockName::parse("b").unwrap());
        let mut waiters: Vec<_> = (0..WAITERS_MAX).map(|_| waiting.enter(&a)).collect();
        assert!(waiting.enter(&b).is_none());
        waiters.pop();
        let other = waiting.enter(&b);
        assert_eq!((waiting.of(&a), waiting.of(&b)), (WAITERS_MAX as u32 - 1, 1));
        drop((waiters, other));
        assert_eq!((waiting.of(&a), waiting.lock().by_name.len(), waiting.gauge.get()), (0, 0, 0));
    }
}
