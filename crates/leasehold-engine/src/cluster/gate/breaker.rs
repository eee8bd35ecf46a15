//! A breaker: when a part of Redis fails, callers stop asking it for a while and go straight to the ledger.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Failures one after the other that open it.
const FAILURES_MAX: u32 = 3;
/// How long it stays open before one caller tries again.
const OPEN_TIME: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Breaker {
    begun: Instant,
    failures: AtomicU32,
    /// Milliseconds after `begun` at which the next caller may try; 0 while it is closed.
    try_at: AtomicU64,
}

impl Breaker {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), failures: AtomicU32::new(0), try_at: AtomicU64::new(0) }
    }

    /// Whether to ask. While it is open, one caller at a time is told to try.
    pub(super) fn allows(&self) -> bool {
        let try_at = self.try_at.load(Ordering::Relaxed);
        if try_at == 0 {
            return true;
        }
        let now = self.millis();
        let next = now + OPEN_TIME.as_millis() as u64;
        now >= try_at
            && self.try_at.compare_exchange(try_at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(super) fn succeeded(&self) {
        self.failures.store(0, Ordering::Relaxed);
        if self.try_at.swap(0, Ordering::Relaxed) != 0 {
            tracing::info!("a part of the gate answers again");
        }
    }

    pub(super) fn failed(&self) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 < FAILURES_MAX {
            return;
        }
        let try_at = self.millis() + OPEN_TIME.as_millis() as u64;
        if self.try_at.swap(try_at, Ordering::Relaxed) == 0 {
            tracing::warn!("a part of the gate does not answer: what is there goes straight to the ledger");
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.try_at.load(Ordering::Relaxed) != 0
    }

    /// Never 0, which stands for closed.
    fn millis(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row_lets_one_try_and_closes_with_a_success() {
        let breaker = Breaker::new();
        breaker.failed();
        breaker.failed();
        breaker.succeeded();
        breaker.failed();
        breaker.failed();
        assert!(breaker.allows() && !breaker.is_open(), "not in a row");
        breaker.failed();
        assert!(!breaker.allows() && breaker.is_open());
        tokio::time::advance(OPEN_TIME).await;
        assert!(breaker.allows(), "one may try");
        assert!(!breaker.allows(), "and only one");
        breaker.succeeded();
        assert!(breaker.allows() && !breaker.is_open());
    }
}
