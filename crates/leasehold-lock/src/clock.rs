//! The time by which leases are judged: it counts while the machine sleeps, and nobody can set it.
//!
//! `std::time::Instant` stops while a laptop or a virtual machine is suspended, so a holder that wakes up
//! would believe in a lease that ended long ago.

use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point in time, as nanoseconds since the machine was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

/// Where the time comes from.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    /// The machine's.
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that stands still until it is moved; for tests of what happens when time jumps.
    pub fn manual() -> Self {
        Self(Some(Arc::new(AtomicU64::new(1_000_000_000_000))))
    }

    /// Moves a manual clock forward; does nothing to the machine's.
    pub fn advance(&self, by: Duration) {
        if let Some(nanos) = &self.0 {
            nanos.fetch_add(nanos_of(by), Ordering::SeqCst);
        }
    }

    /// Now.
    pub fn now(&self) -> Moment {
        match &self.0 {
            None => {
                let time = clock_gettime(ClockId::Boottime);
                Moment(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
            }
            Some(nanos) => Moment(nanos.load(Ordering::SeqCst)),
        }
    }
}

impl Moment {
    /// Nanoseconds since the machine was started.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment that lies so long after the start of the machine.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// How long after `earlier` this is; nothing when it is not later.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos_of(duration)))
    }
}

fn nanos_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_and_differences_never_go_below_nothing() {
        let clock = Clock::system();
        let (first, second) = (clock.now(), clock.now());
        assert!(first <= second);
        assert_eq!(first.since(second + Duration::from_secs(1)), Duration::ZERO);
    }
}
