//! The server's time: it counts while the machine sleeps and never runs backwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// Where an engine's time comes from.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    /// The wall clock at the start, and from there the time since boot, which no one sets.
    System { started_at: u64, boot_at_start: u64 },
    /// Set by a test.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's time, from its wall clock at this moment.
    pub fn system() -> Self {
        Self(Source::System { started_at: wall_millis(), boot_at_start: boot_millis() })
    }

    /// A clock that stands still until it is set; for tests.
    pub fn manual(now: Timestamp) -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(now.as_millis()))))
    }

    /// Sets a manual clock forward. Does nothing to the machine's, or backwards.
    pub fn set(&self, now: Timestamp) {
        if let Source::Manual(time) = &self.0 {
            time.fetch_max(now.as_millis(), Ordering::SeqCst);
        }
    }

    /// The same clock, but not before `earliest`: a wall clock set back while the server was down does
    /// not bring old holds back to life.
    #[must_use]
    pub fn not_before(self, earliest: Timestamp) -> Self {
        match self.0 {
            Source::System { started_at, boot_at_start } => {
                Self(Source::System { started_at: started_at.max(earliest.as_millis()), boot_at_start })
            }
            Source::Manual(time) => {
                time.fetch_max(earliest.as_millis(), Ordering::SeqCst);
                Self(Source::Manual(time))
            }
        }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(match &self.0 {
            Source::System { started_at, boot_at_start } => started_at + (boot_millis() - boot_at_start),
            Source::Manual(time) => time.load(Ordering::SeqCst),
        })
    }
}

fn wall_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX / 2)
}

fn boot_millis() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000 + time.tv_nsec.unsigned_abs() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_start_before_what_was_persisted() {
        let future = Timestamp::from_millis(wall_millis() + 3_600_000);
        let clock = Clock::system().not_before(future);
        assert!(clock.now() >= future);
        assert!(Clock::system().now() < future);
    }
}
