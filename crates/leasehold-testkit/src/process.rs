//! The real server as a child process on a free loopback port, and what can be done to it.

use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use crate::launch::Launch;
use crate::signals;

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
        signals::children(tracer).first().copied().unwrap_or(tracer)
    }

    /// Kills it without a word, as a power cut would, and waits until it is gone.
    pub fn kill9(&mut self) {
        self.signal(Signal::KILL);
        self.wait_for_exit(Duration::from_secs(10)).expect("a process that got SIGKILL ends");
    }

    /// Stops the world for it, and waits until every one of its threads stands still.
    pub fn sigstop(&mut self) {
        if self.is_running() {
            signals::pause(self.pid());
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
        signals::wait_for_exit(&mut self.child, time_max)
    }

    /// True while it runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What it wrote to stderr so far.
    pub fn log(&self) -> String {
        signals::read_lossy(&self.log)
    }

    /// What strace wrote so far; empty when it does not run under strace.
    pub fn trace(&self) -> String {
        self.trace.as_deref().map(signals::read_lossy).unwrap_or_default()
    }

    pub(crate) fn log_tail(&self) -> String {
        signals::log_tail(&self.log)
    }

    /// Signals the server unless it has ended: then its id may belong to somebody else.
    fn signal(&mut self, signal: Signal) {
        if self.is_running() {
            signals::send(self.pid(), signal);
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
