//! A program that runs for the demonstration and ends with it, however it ends.
//!
//! The kernel kills a child when the *thread* that started it ends. So children are started by the main thread, which
//! polls the command's own future and lives as long as the process; no task of the runtime may start one.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a start may take, on a machine that is busy with much else.
const READY_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a program that was asked to end may take.
const STOP_TIME_MAX: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How much of a log is shown when a program does not start.
const LOG_LINES_MAX: usize = 12;

/// A running program. Dropping it kills it.
pub(super) struct Child {
    name: String,
    process: std::process::Child,
    log: PathBuf,
}

/// A user that a program runs as.
#[derive(Clone, Copy)]
pub(super) struct User {
    pub(super) user_id: u32,
    pub(super) group_id: u32,
}

/// A command that runs `program`, as `user` if one is given, and is killed when this process ends.
pub(super) fn tied_to_us(program: &Path, user: Option<User>) -> Command {
    // Whoever may not enter the folder of this executable may run it under this name all the same.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("leasehold").args(["__exec", "--parent", &std::process::id().to_string(), "--"]);
    command.arg(program);
    if let Some(user) = user {
        command.uid(user.user_id).gid(user.group_id);
    }
    // Ctrl-C on a terminal is for this process, which ends the others in their order.
    command.process_group(0).stdin(Stdio::null());
    command
}

impl Child {
    /// Starts a command made by [`tied_to_us`]; what it says goes to the file `log`.
    pub(super) fn start(name: &str, mut command: Command, log: PathBuf) -> anyhow::Result<Self> {
        let file = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        command.stdout(file.try_clone()?).stderr(file);
        let process = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), process, log })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it is ready; an error has the end of its log.
    pub(super) async fn ready(&mut self, mut is_ready: impl AsyncFnMut() -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_TIME_MAX;
        loop {
            // In this order: somebody else may answer at its address.
            let is_ready = is_ready().await;
            if let Some(status) = self.process.try_wait()? {
                bail!("{} ended before it was ready ({status}):\n{}", self.name, self.last_lines());
            }
            if is_ready {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("{} was not ready within {READY_TIME_MAX:?}:\n{}", self.name, self.last_lines());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Asks it to end, and kills it if it does not.
    pub(super) async fn stop(mut self, signal: Signal) {
        // One that has ended by now is not collected, so that its number is still its own.
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
        let deadline = Instant::now() + STOP_TIME_MAX;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn last_lines(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail harmlessly when it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
