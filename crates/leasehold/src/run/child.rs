//! The command: a process group of its own, signalled as a whole and ended as a whole.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context;
use leasehold_lock::{Clock, Guard};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process_group, waitid};

use super::terminal::Terminal;
use super::warden::Warden;

/// How long processes that were killed may take to be gone.
const DEATH_TIME_MAX: Duration = Duration::from_secs(10);

/// The command, until it is collected. Its number, and its group's, are nobody else's until then.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    group: Pid,
    warden: Option<Warden>,
    terminal: Option<Terminal>,
    clock: Clock,
}

impl Child {
    /// Starts the command. To be called on the main thread: the kernel kills the command when the *thread* that
    /// started it ends.
    pub(super) fn start(
        command: &[OsString],
        variables: Vec<(&'static str, String)>,
        guard: &Guard,
    ) -> anyhow::Result<Self> {
        let clock = Clock::system();
        let mut warden = Warden::start()?;
        let mut exec = Command::new("/proc/self/exe");
        exec.arg0("leasehold").args(["__exec", "--parent", &getpid().as_raw_nonzero().to_string(), "--"]);
        exec.args(command).process_group(0).env_remove("LEASEHOLD_OWNER").envs(variables);
        let process = exec.spawn().context("cannot start a process")?;
        let group = Pid::from_child(&process);
        if let Err(error) = warden.watch(group) {
            let mut child = Self { process, group, warden: None, terminal: None, clock };
            child.signal(Signal::KILL);
            child.collect()?;
            return Err(error);
        }
        let terminal = Terminal::hand_over(group);
        let mut child = Self { process, group, warden: Some(warden), terminal, clock };
        child.may_run_as_long_as(guard);
        Ok(child)
    }

    /// Has the warden know how long the lease lasts by now.
    pub(super) fn may_run_as_long_as(&mut self, guard: &Guard) {
        // The clock is read first, so the sum is never too late.
        let now = self.clock.now();
        let deadline = now + guard.time_left();
        if let Some(warden) = &mut self.warden {
            warden.extend(deadline);
        }
    }

    /// True when the command has ended; what it started may still run.
    pub(super) fn has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(self.group), look), Ok(None))
    }

    /// A lease does not wait: what Ctrl-Z has stopped goes on.
    pub(super) fn refuse_to_be_suspended(&self) {
        if self.terminal.is_none() {
            return;
        }
        let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        if let Ok(Some(status)) = waitid(WaitId::Pid(self.group), look)
            && status.stopping_signal() == Some(Signal::TSTP.as_raw())
        {
            eprintln!("leasehold: the command cannot be suspended while it holds a lock");
            self.signal(Signal::CONT);
        }
    }

    /// Signals every process of the group.
    pub(super) fn signal(&self, signal: Signal) {
        // Whoever is gone already needs no signal.
        let _ = kill_process_group(self.group, signal);
    }

    /// Kills what is left of the group after the command has ended, and waits. False when something stays.
    pub(super) async fn end_stragglers(&mut self) -> bool {
        let until = Instant::now() + DEATH_TIME_MAX;
        loop {
            self.signal(Signal::KILL);
            if !has_live_member(self.group) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// How the command ended. Its number is free after this.
    pub(super) fn collect(&mut self) -> anyhow::Result<ExitStatus> {
        if let Some(warden) = self.warden.take() {
            warden.dismiss();
        }
        if let Some(terminal) = self.terminal.take() {
            terminal.take_back(self.group);
        }
        self.process.wait().context("cannot tell how the command ended")
    }
}

/// True while a process of the group can still do something.
fn has_live_member(group: Pid) -> bool {
    let group = group.as_raw_nonzero().to_string();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut stats = processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
    stats.any(|stat| {
        // The name stands in brackets and may hold anything; then come state, parent and group.
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let state = fields.next();
        fields.nth(1) == Some(&group) && !matches!(state, Some("Z" | "X"))
    })
}
