//! What can be done to a process from outside, and how to see that it has happened.

use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long the kernel may take to stop or end a process that was sent a signal it cannot refuse.
const SIGNAL_TIME_MAX: Duration = Duration::from_secs(10);
/// How much of a log a panic shows.
const LOG_TAIL_BYTES: usize = 4096;

/// Sends a signal. The process may end at this very moment; whoever waits for it sees how.
pub(crate) fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Stops the world for a process; panics when it does not stop.
pub(crate) fn pause(pid: u32) {
    assert!(try_pause(pid), "process {pid} did not stop within {SIGNAL_TIME_MAX:?} of SIGSTOP");
}

/// Stops the world for a process, and waits until every one of its threads stands still: the signal alone
/// only asks, and a busy machine lets a thread run on for a while. False when that takes too long.
pub(crate) fn try_pause(pid: u32) -> bool {
    send(pid, Signal::STOP);
    wait_until(|| is_stopped(pid))
}

/// Waits until a process that got SIGKILL is gone. One that nobody has collected yet counts as gone.
pub(crate) fn wait_until_gone(pid: u32) -> bool {
    wait_until(|| !is_alive(pid))
}

/// How a child ended, or `None` if it still runs after `time_max`.
pub(crate) fn wait_for_exit(child: &mut Child, time_max: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + time_max;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The processes that `pid` has started and not collected.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// True while `pid` is a process that can still do something.
pub(crate) fn is_alive(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    state.is_ok_and(|stat| !matches!(state_in(&stat), Some('Z' | 'X')))
}

/// A file's text, whatever is in it; empty when there is no such file.
pub(crate) fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// The end of a log, for a panic.
pub(crate) fn log_tail(log: &Path) -> String {
    let log = read_lossy(log);
    let from = log.ceil_char_boundary(log.len().saturating_sub(LOG_TAIL_BYTES));
    format!("--- end of the server's log ---\n{}", &log[from..])
}

fn wait_until(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + SIGNAL_TIME_MAX;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// True when every thread of `pid` is in the kernel's state `T`, or has ended.
fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut states = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    states.all(|stat| matches!(state_in(&stat), Some('T' | 'Z' | 'X')))
}

/// The state follows the name, which stands in brackets and may hold anything.
fn state_in(stat: &str) -> Option<char> {
    stat.rsplit(") ").next()?.chars().next()
}
