//! What the command is told about the lock it runs under. Never the owner's token.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_lock::{Fence, Guard};

/// The variables that the command gets.
pub(super) fn of(guard: &Guard, max_hold: Duration) -> Vec<(&'static str, String)> {
    let names: Vec<&str> = guard.names().as_slice().iter().map(|name| name.as_str()).collect();
    let fences = guard.fences().unwrap_or_default();
    let fences: Vec<String> = fences.iter().map(|Fence(fence)| fence.to_string()).collect();
    let now = SystemTime::now();
    let deadline = now + guard.time_left();
    let shown = jiff::Timestamp::try_from(deadline).map(|deadline| deadline.to_string());
    vec![
        ("LEASEHOLD_LOCK", names.join("\n")),
        ("LEASEHOLD_FENCE", fences.join("\n")),
        ("LEASEHOLD_GUARANTEE", guard.guarantee().as_str().to_owned()),
        ("LEASEHOLD_DEADLINE", shown.unwrap_or_default()),
        ("LEASEHOLD_DEADLINE_MS", millis(deadline)),
        ("LEASEHOLD_MAX_DEADLINE_MS", millis(now + max_hold)),
    ]
}

fn millis(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis().to_string()
}
