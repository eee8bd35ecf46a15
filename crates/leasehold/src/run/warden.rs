//! `leasehold __warden`: a second process that kills the command if the first one cannot.
//!
//! `leasehold run` may be killed, stopped or starved. The warden is told each new deadline of the lease
//! through a pipe, and kills the command's process group when a deadline passes without a later one, or when
//! the pipe ends because `leasehold run` is gone. Its timer also counts the time that the machine was
//! suspended.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context;
use leasehold_lock::Moment;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::signal::unix::{SignalKind, signal};

/// A deadline that moved by less is the same one, read twice.
const WORTH_TELLING: Duration = Duration::from_millis(5);

/// The warden as `leasehold run` has it.
#[derive(Debug)]
pub(super) struct Warden {
    process: std::process::Child,
    told: ChildStdin,
    deadline: Moment,
}

impl Warden {
    /// Starts it. In a group of its own, so that Ctrl-C on a terminal does not reach it.
    pub(super) fn start() -> anyhow::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("leasehold").arg("__warden").process_group(0).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut process = command.spawn().context("cannot start the warden of the command")?;
        let told = process.stdin.take().context("the warden has no pipe")?;
        // A warden that does not read must not hold up whoever writes.
        ioctl_fionbio(&told, true).context("the warden's pipe cannot be set up")?;
        Ok(Self { process, told, deadline: Moment::from_nanos(0) })
    }

    /// Tells which group to kill. Nothing else is to be told before.
    pub(super) fn watch(&mut self, group: Pid) -> anyhow::Result<()> {
        self.told
            .write_all(format!("{}\n", group.as_raw_nonzero()).as_bytes())
            .context("the warden has ended")
    }

    /// Tells a new deadline. A warden that is gone is missed when it is needed, and not before.
    pub(super) fn extend(&mut self, deadline: Moment) {
        let moved = deadline.since(self.deadline).max(self.deadline.since(deadline));
        // One write, which the pipe takes whole or not at all; if not, it is tried at the next look.
        if moved > WORTH_TELLING
            && self.told.write_all(format!("{}\n", deadline.as_nanos()).as_bytes()).is_ok()
        {
            self.deadline = deadline;
        }
    }

    /// Ends it, before the number of the group can belong to anybody else.
    pub(super) fn dismiss(mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The warden itself.
pub(crate) fn keep_watch() -> anyhow::Result<ExitCode> {
    // Whoever stops a service signals all of its processes; this one must be the last to go.
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
    let _listening: Vec<_> = kinds.into_iter().map(signal).collect::<Result<_, _>>()?;
    let mut told = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    let mut group = None;
    let mut text = String::new();
    loop {
        let mut ready = [PollFd::new(&told, PollFlags::IN), PollFd::new(&timer, PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(Errno::INTR) => continue,
            polled => polled?,
        };
        // What was told last counts: a warden that was held up finds it together with an old deadline's end.
        if ready[0].revents().is_empty() {
            break;
        }
        let mut bytes = [0; 1024];
        match told.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(length) => text.push_str(&String::from_utf8_lossy(&bytes[..length])),
        }
        while let Some((line, rest)) = text.split_once('\n') {
            match group {
                None => {
                    group = Some(line.parse().ok().and_then(Pid::from_raw).context("not a process group")?)
                }
                Some(_) => set(&timer, line.parse().context("not a time")?)?,
            }
            text = rest.to_owned();
        }
    }
    if let Some(group) = group {
        // Whoever is gone already need not be killed.
        let _ = kill_process_group(group, Signal::KILL);
    }
    Ok(ExitCode::SUCCESS)
}

/// Has the timer go off at a time since the machine was started.
fn set(timer: &OwnedFd, nanos: u64) -> anyhow::Result<()> {
    // All zeros would switch it off.
    let nanos = i64::try_from(nanos)?.max(1);
    let at = Timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once)?;
    Ok(())
}
