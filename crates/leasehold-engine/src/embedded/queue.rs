//! The bounded queue in front of the writer: callers push, the writer takes all there is.

use std::sync::atomic::AtomicI64;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use prometheus_client::metrics::gauge::Gauge;

/// A queue with two marks: at the lower one what can wait is shed, at the upper one everything.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    inside: Mutex<Inside<T>>,
    filled: Condvar,
    length_max: usize,
    /// How many items wait, for the operator.
    depth: Gauge<i64, AtomicI64>,
}

#[derive(Debug)]
struct Inside<T> {
    items: Vec<T>,
    closed: bool,
    /// Whether the writer sleeps; waking it costs a system call.
    writer_waits: bool,
}

/// Why an item was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejected {
    Full,
    Closed,
}

/// How much an item matters when there is too much to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// A newcomer, who can come back later.
    New,
    /// Somebody in the middle of a sale.
    Begun,
}

impl<T> Queue<T> {
    pub(crate) fn new(length_max: usize, depth: Gauge<i64, AtomicI64>) -> Self {
        let inside = Inside { items: Vec::new(), closed: false, writer_waits: false };
        Self { inside: Mutex::new(inside), filled: Condvar::new(), length_max, depth }
    }

    pub(crate) fn push(&self, item: T, weight: Weight) -> Result<(), (Rejected, T)> {
        let length_max = match weight {
            Weight::New => self.length_max / 4 * 3,
            Weight::Begun => self.length_max,
        };
        let mut inside = self.lock();
        if inside.closed {
            return Err((Rejected::Closed, item));
        }
        if inside.items.len() >= length_max {
            return Err((Rejected::Full, item));
        }
        inside.items.push(item);
        self.depth.set(inside.items.len() as i64);
        let wake = std::mem::take(&mut inside.writer_waits);
        drop(inside);
        if wake {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Moves what has queued into `out`, waiting until `deadline` for something. False when closed and empty.
    pub(crate) fn take(&self, out: &mut Vec<T>, deadline: Option<Instant>) -> bool {
        let mut inside = self.lock();
        while inside.items.is_empty() && !inside.closed {
            inside.writer_waits = true;
            let wait = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(3_600),
            };
            if wait.is_zero() {
                break;
            }
            inside =
                self.filled.wait_timeout(inside, wait).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        inside.writer_waits = false;
        std::mem::swap(&mut inside.items, out);
        self.depth.set(inside.items.len() as i64);
        !(inside.closed && out.is_empty())
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    /// Closes it and drops what waits: whoever asked learns that no answer comes.
    pub(crate) fn close_and_clear(&self) {
        let mut inside = self.lock();
        inside.closed = true;
        let items = std::mem::take(&mut inside.items);
        self.depth.set(0);
        drop(inside);
        drop(items);
    }

    /// Whether newcomers are taken.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().items.len() < self.length_max / 4 * 3
    }

    fn lock(&self) -> MutexGuard<'_, Inside<T>> {
        // Nothing inside can be left half done, so a panic elsewhere does not spoil it.
        self.inside.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newcomers_are_shed_before_those_in_the_middle_of_a_sale() {
        let depth = Gauge::default();
        let queue = Queue::new(4, depth.clone());
        for item in 0..3 {
            assert!(queue.push(item, Weight::New).is_ok());
        }
        assert_eq!(queue.push(3, Weight::New), Err((Rejected::Full, 3)));
        assert!(queue.push(3, Weight::Begun).is_ok());
        assert_eq!(queue.push(4, Weight::Begun), Err((Rejected::Full, 4)));
        assert_eq!(depth.get(), 4, "those that wait are counted");
        queue.close();
        assert_eq!(queue.push(5, Weight::Begun), Err((Rejected::Closed, 5)));
        let mut out = Vec::new();
        assert!(queue.take(&mut out, None));
        assert_eq!(out, [0, 1, 2, 3]);
        assert_eq!(depth.get(), 0);
        out.clear();
        assert!(!queue.take(&mut out, None));
    }
}
