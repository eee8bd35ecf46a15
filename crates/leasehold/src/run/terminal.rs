//! The terminal, if there is one: the command reads from it and gets its Ctrl-C, as if it had been started alone.
//!
//! Only a process of the foreground group may hand the terminal on without being stopped for it. At the start
//! that is `leasehold run`. At the end it is nobody who still lives, so a helper joins the command's group for
//! just that: `leasehold __foreground`.

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getpgrp, kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The terminal while it is the command's.
#[derive(Debug)]
pub(super) struct Terminal {
    before: Pid,
}

/// What `leasehold run` tells the helper.
#[derive(Debug, clap::Args)]
pub(crate) struct ForegroundArgs {
    group: i32,
}

impl Terminal {
    /// Gives the terminal to the group, if it was in front of this program.
    pub(super) fn hand_over(group: Pid) -> Option<Self> {
        let stdin = std::io::stdin();
        let before = getpgrp();
        if !stdin.is_terminal() || tcgetpgrp(&stdin) != Ok(before) {
            return None;
        }
        tcsetpgrp(&stdin, group).ok()?;
        // If it tried to read before, it was stopped for it.
        let _ = kill_process_group(group, Signal::CONT);
        Some(Self { before })
    }

    /// Takes it back from a group whose leader has ended and is not collected yet.
    pub(super) fn take_back(self, group: Pid) {
        let mut helper = Command::new("/proc/self/exe");
        helper.arg0("leasehold").args(["__foreground", &self.before.as_raw_nonzero().to_string()]);
        // If it fails, whoever reads next is told by the system.
        let _ = helper.process_group(group.as_raw_nonzero().get()).status();
    }
}

/// The helper.
pub(crate) fn foreground(args: &ForegroundArgs) -> ExitCode {
    let handed_over =
        Pid::from_raw(args.group).is_some_and(|group| tcsetpgrp(std::io::stdin(), group).is_ok());
    if handed_over { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
