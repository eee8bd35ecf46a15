//! When the next request is due.
//!
//! In a closed loop a user asks again as soon as it has its answer, so a slow server gets fewer
//! requests. In an open loop requests are due at a constant rate, whatever the server does, and latency
//! counts from the instant a request was due: waiting for a free connection is part of it
//! ("coordinated omission" would be to leave that wait out).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A timer fires up to this late. A user that was idle when its request was due does not blame the server.
const TIMER_SLACK: Duration = Duration::from_millis(2);

/// When requests are sent, shared by all users.
#[derive(Debug)]
pub(crate) struct Pace {
    start: Instant,
    end: Instant,
    stop: CancellationToken,
    open_loop: Option<OpenLoop>,
}

#[derive(Debug)]
struct OpenLoop {
    rate_per_second: f64,
    next: AtomicU64,
}

impl Pace {
    /// From `start` for `duration`, or until `stop`; at a constant rate, if one is given.
    pub(crate) fn new(
        start: Instant,
        duration: Duration,
        stop: CancellationToken,
        rate_per_second: Option<f64>,
    ) -> Self {
        let open_loop =
            rate_per_second.map(|rate_per_second| OpenLoop { rate_per_second, next: AtomicU64::new(0) });
        Self { start, end: start + duration, stop, open_loop }
    }

    /// When the run began.
    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    /// Waits until the caller may send, and returns the instant its latency counts from; `None` at the end.
    pub(crate) async fn next(&self) -> Option<Instant> {
        let now = Instant::now();
        if now >= self.end || self.stop.is_cancelled() {
            return None;
        }
        let Some(open_loop) = &self.open_loop else { return Some(now) };
        let due = self.start + open_loop.due_after(open_loop.next.fetch_add(1, Ordering::Relaxed));
        if due >= self.end {
            return None;
        }
        if due <= now {
            return Some(due);
        }
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            () = self.stop.cancelled() => return None,
        }
        let woken = Instant::now();
        Some(if woken - due <= TIMER_SLACK { woken } else { due })
    }

    /// Requests that were due until `now`, in an open loop.
    pub(crate) fn due_until(&self, now: Instant) -> Option<u64> {
        let passed = now.min(self.end) - self.start;
        self.open_loop
            .as_ref()
            .map(|open_loop| (passed.as_secs_f64() * open_loop.rate_per_second).floor() as u64)
    }
}

impl OpenLoop {
    fn due_after(&self, index: u64) -> Duration {
        Duration::from_secs_f64(index as f64 / self.rate_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_user_that_comes_late_is_measured_from_when_it_was_due() {
        let start = Instant::now() - Duration::from_secs(3);
        let pace = Pace::new(start, Duration::from_secs(10), CancellationToken::new(), Some(10.0));
        assert_eq!(pace.next().await, Some(start));
        assert_eq!(pace.next().await, Some(start + Duration::from_millis(100)));
        assert_eq!(pace.due_until(start + Duration::from_millis(3150)), Some(31));
        assert_eq!(pace.due_until(start + Duration::from_secs(60)), Some(100));
    }

    #[tokio::test]
    async fn it_ends_after_the_duration_and_on_demand() {
        let stop = CancellationToken::new();
        let long_ago = Instant::now() - Duration::from_secs(2);
        assert_eq!(Pace::new(long_ago, Duration::from_secs(1), stop.clone(), None).next().await, None);
        let pace = Pace::new(Instant::now(), Duration::from_secs(60), stop.clone(), None);
        assert!(pace.next().await.is_some());
        stop.cancel();
        assert_eq!(pace.next().await, None);
    }
}
