//! How late this machine is, so that a test may tell a stall of the machine from a fault of what it tests.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long the watching thread sleeps at a time.
const STEP: Duration = Duration::from_millis(5);

/// A thread that does nothing but sleep, and notes how late it wakes up. It is a thread and no task, so that a runtime
/// which is kept busy is no excuse.
#[derive(Debug)]
pub struct Lateness(Arc<Mutex<Noted>>);

#[derive(Debug)]
struct Noted {
    /// When the present sleep began.
    asleep_since: Instant,
    worst: Duration,
}

impl Lateness {
    /// Watches until it is dropped.
    pub fn watch() -> Self {
        let noted = Arc::new(Mutex::new(Noted { asleep_since: Instant::now(), worst: Duration::ZERO }));
        let watched = Arc::downgrade(&noted);
        std::thread::spawn(move || {
            while note(&watched) {
                std::thread::sleep(STEP);
            }
        });
        Self(noted)
    }

    /// By how much the thread was late at worst since it watches, or is now.
    pub fn worst(&self) -> Duration {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.worst.max(noted.late_by())
    }
}

impl Noted {
    fn late_by(&self) -> Duration {
        self.asleep_since.elapsed().saturating_sub(STEP)
    }
}

/// Notes how late the thread is; false when nobody wants to know any more.
fn note(noted: &Weak<Mutex<Noted>>) -> bool {
    let Some(noted) = noted.upgrade() else { return false };
    let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
    noted.worst = noted.worst.max(noted.late_by());
    noted.asleep_since = Instant::now();
    true
}

#[test]
fn a_machine_that_is_not_stalled_is_hardly_late() {
    let lateness = Lateness::watch();
    std::thread::sleep(STEP * 4);
    assert!(lateness.worst() < Duration::from_secs(10), "{:?}", lateness.worst());
}
