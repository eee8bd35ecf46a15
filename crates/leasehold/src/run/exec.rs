//! `leasehold __exec`: becomes the command, after asking the kernel to kill it when `leasehold run` dies.
//!
//! The kernel keeps that promise over `exec`, except for programs that change their user (setuid, file
//! capabilities), and it is for one process, not for those it starts: the warden is for those.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// As shells have it.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// What `leasehold run` tells it.
#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    /// Who starts it
    #[arg(long)]
    parent: i32,

    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Returns only when the command cannot be run.
pub(crate) fn exec(args: &ExecArgs) -> ExitCode {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("leasehold: cannot tie the command to this program: {error}");
        return ExitCode::from(CANNOT_RUN);
    }
    // If it died before the kernel was asked, nothing will come.
    if getppid() != Pid::from_raw(args.parent) {
        return ExitCode::from(128 + Signal::KILL.as_raw() as u8);
    }
    let Some((program, rest)) = args.command.split_first() else { return ExitCode::from(CANNOT_RUN) };
    let error = Command::new(program).args(rest).exec();
    eprintln!("leasehold: cannot run {}: {error}", program.display());
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    ExitCode::from(if missing { NOT_FOUND } else { CANNOT_RUN })
}
