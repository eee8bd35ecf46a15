//! The real server as a child process on a free loopback port, and what can be done to it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::launch::Launch;

/// How much of the log a panic shows.
const LOG_TAIL_BYTES: usize = 4096;

/// A running server. It is killed when this is dropped, also by a panic.
#[derive(Debug)]
pub struct ServerProcess {
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) log: PathBuf,
    pub(crate) trace: Option<PathBuf>,
    /// Keeps the log's directory as long as the process.
    pub(crate) _directory: tempfile::TempDir,
}

impl ServerProcess {
    /// Runs `leasehold serve` on `data` and waits until it is ready; panics with its log when it is not.
    pub fn start(binary: &Path, data: &Path, extra_args: &[&str]) -> Self {
        Launch::new(binary, data).args(extra_args).start()
    }

    /// The same under strace, which injects the fault `inject` (as in `-e inject=`).
    pub fn start_under_strace(binary: &Path, data: &Path, inject: &str) -> Self {
        Launch::new(binary, data).strace(inject).start()
    }

    /// Where it listens, `127.0.0.1:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The server's process id, also under strace.
    pub fn pid(&self) -> u32 {
        if self.trace.is_none() {
            return self.child.id();
        }
        let tracer = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{tracer}/task/{tracer}/children"));
        let child = children.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
        child.unwrap_or(tracer)
    }

    /// Kills it without a word, as a power cut would, and waits until it is gone.
    pub fn kill9(&mut self) {
        self.signal(Signal::KILL);
        self.wait_for_exit(Duration::from_secs(10)).expect("a process that got SIGKILL ends");
    }

    /// Stops the world for it, and waits until every one of its threads stands still: the signal alone
    /// only asks, and a busy machine lets a thread run on for a while.
    pub fn sigstop(&mut self) {
        self.signal(Signal::STOP);
        let deadline = Instant::now() + Duration::from_secs(10);
        while !is_stopped(self.pid()) {
            assert!(Instant::now() < deadline, "the server did not stop within 10 s of SIGSTOP");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets it go on.
    pub fn sigcont(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end, and waits for it; panics when that takes longer than 30 seconds.
    pub fn sigterm_and_wait(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        let ended = self.wait_for_exit(Duration::from_secs(30));
        ended.unwrap_or_else(|| panic!("the server did not end within 30 s of SIGTERM:\n{}", self.log_tail()))
    }

    /// How it ended by itself, or `None` if it is still running after `time_max`.
    pub fn wait_for_exit(&mut self, time_max: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + time_max;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// True while it runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What it wrote to stderr so far.
    pub fn log(&self) -> String {
        read_lossy(&self.log)
    }

    /// What strace wrote so far; empty when it does not run under strace.
    pub fn trace(&self) -> String {
        self.trace.as_deref().map(read_lossy).unwrap_or_default()
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let from = log.ceil_char_boundary(log.len().saturating_sub(LOG_TAIL_BYTES));
        let mut tail = String::new();
        let _ = write!(tail, "--- end of the server's log ---\n{}", &log[from..]);
        tail
    }

    /// Signals the server unless it has ended: then its id may belong to somebody else.
    fn signal(&mut self, signal: Signal) {
        if !self.is_running() {
            return;
        }
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            // It may end at this very moment; whoever waits for it sees how.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Under strace both must go: a killed tracer would leave the server running.
        self.signal(Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Raises this process's limit of open files to `wanted`; panics when the machine does not allow it.
pub fn raise_open_files_limit(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let maximum = limit.maximum.map(|maximum| maximum.max(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    raised.unwrap_or_else(|error| panic!("cannot open {wanted} files (now {limit:?}): {error}"));
}

/// True when every thread of `pid` is in the kernel's state `T`.
fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let states = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    // The state follows the name, which stands in brackets and may hold anything.
    states
        .map(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
        .all(|stopped| stopped)
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
