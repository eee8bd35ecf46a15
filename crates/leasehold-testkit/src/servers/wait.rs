//! Waits for a condition, with a bound.

use std::time::{Duration, Instant};

/// Waits until `condition` holds; panics with `what` was expected and what `details` show when it does not.
pub(crate) fn until(
    what: &str,
    time_max: Duration,
    condition: impl Fn() -> bool,
    details: impl FnOnce() -> String,
) {
    let deadline = Instant::now() + time_max;
    while !condition() {
        if Instant::now() >= deadline {
            panic!("not within {time_max:?}: {what}\n{}", details());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
