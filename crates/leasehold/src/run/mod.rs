//! `leasehold run`: runs a command while holding a lock, and never longer.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

pub(crate) mod exec;
pub(crate) mod terminal;
pub(crate) mod warden;

mod child;
mod environment;
mod forward;
mod supervise;

use anyhow::Context;
use leasehold_lock::backend::Released;
use leasehold_lock::{Acquired, Busy, Guard, Label, Locker};
use tokio::signal::unix::{SignalKind, signal};

use crate::lock_store::{self, Failure, LOST, NOT_OBTAINED, REFUSED, StoreArgs};
use crate::rush::duration;
use child::Child;
use forward::Forwarded;
use supervise::Ending;

/// How long to wait for what must still be given back when everything else is over.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(2);

/// What `leasehold run` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold run --lock nightly -- /usr/local/bin/backup.sh
  leasehold run --lock nightly --wait 5m --ttl 1m -- make -C /srv/reports
  LEASEHOLD_STORE=redis://cache:6379 leasehold run --lock invoices --lock ledger -- ./close-month

The command runs in a process group of its own. Its environment has:
  LEASEHOLD_LOCK               the names, one a line
  LEASEHOLD_FENCE              their fences, one a line; empty where the store gives none. Send it along with
                               every write, and have whoever stores it refuse lower ones
  LEASEHOLD_GUARANTEE          what the lock is worth: fenced, lease or best-effort
  LEASEHOLD_DEADLINE           when the lease ends if it is never renewed, as in 2026-01-31T09:30:00.5Z
  LEASEHOLD_DEADLINE_MS        the same in milliseconds since 1970
  LEASEHOLD_MAX_DEADLINE_MS    when --max-hold ends

When the lease cannot be renewed, the group gets SIGTERM while a third of the lease (--grace at most) is left, and
SIGKILL before anybody else can have the lock. When the lock is gone already, or this program is killed, it gets
SIGKILL at once. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to the group.

Exit status: the command's own, or 128 + n when signal n ended it; 126 when it cannot be run, 127 when it is not
found; 96 when the store or the setup refuses, 97 when somebody else has the lock, 98 when the lock was lost or
--max-hold was over, 99 when the store does not answer; 2 for a mistake on the command line.")]
pub(crate) struct RunArgs {
    /// What to lock; several are taken together, all or none
    #[arg(long = "lock", required = true, value_name = "NAME", value_parser = lock_store::name)]
    locks: Vec<String>,

    /// How long the lock stays if this machine dies; it is renewed at a third of it
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = duration::parse)]
    ttl: Duration,

    /// How long to wait while somebody else has it
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = lock_store::wait)]
    wait: Duration,

    /// The longest the command may run
    #[arg(long, default_value = "24h", value_name = "TIME", value_parser = duration::parse)]
    max_hold: Duration,

    /// How long the command has between SIGTERM and SIGKILL, if the lease leaves so much
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = lock_store::wait)]
    grace: Duration,

    /// What others see as the holder [default: this host and process]
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,

    /// Wait in line, first come first served, where the store keeps a queue
    #[arg(long)]
    in_order: bool,

    #[command(flatten)]
    store: StoreArgs,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How it went.
enum Outcome {
    /// The command ran and ended.
    Ran(ExitStatus, Ending),
    /// Somebody else has the lock.
    Busy(Busy),
    /// A signal came before there was a lock.
    Interrupted(i32),
}

pub(crate) async fn run(args: RunArgs) -> ExitCode {
    let locker = match args.store.open() {
        Ok(locker) => locker,
        Err(failure) => return failure.report(),
    };
    let outcome = hold_and_run(&args, &locker).await;
    locker.settle(SETTLE_TIME_MAX).await;
    match outcome {
        Ok(outcome) => outcome.report(),
        Err(failure) => failure.report(),
    }
}

async fn hold_and_run(args: &RunArgs, locker: &Locker) -> Result<Outcome, Failure> {
    let mut signals = Forwarded::listen()?;
    let mut deaths = signal(SignalKind::child()).context("cannot be told when the command ends")?;
    let mut acquire = locker.acquire(lock_store::names(&args.locks)?);
    acquire = acquire.ttl(args.ttl).wait(args.wait).hold_max(args.max_hold);
    if let Some(label) = args.label.as_deref().and_then(Label::lossy) {
        acquire = acquire.label(label);
    }
    if args.in_order {
        acquire = acquire.in_order();
    }
    let acquired = tokio::select! {
        acquired = acquire => acquired?,
        signal = signals.next() => return Ok(Outcome::Interrupted(signal.as_raw())),
    };
    let guard = match acquired {
        Acquired::Granted(guard) => guard,
        Acquired::Busy(busy) => return Ok(Outcome::Busy(busy)),
    };
    let variables = environment::of(&guard, args.max_hold);
    let mut child = match Child::start(&args.command, variables, &guard) {
        Ok(child) => child,
        Err(error) => {
            guard.release().await?;
            return Err(Failure { code: REFUSED, error });
        }
    };
    let plan = supervise::Plan { ttl: args.ttl, grace: args.grace, max_hold: args.max_hold };
    let ending = supervise::until_end(&mut child, &guard, &mut signals, &mut deaths, &plan).await;
    let all_gone = child.end_stragglers().await;
    let status = child.collect()?;
    Ok(Outcome::Ran(status, give_back(guard, all_gone, ending).await))
}

/// Releases the lock, unless something that ran under it might still run.
async fn give_back(guard: Guard, all_gone: bool, ending: Ending) -> Ending {
    if !all_gone {
        eprintln!("leasehold: a process of the command does not die; the lock is left to end by itself");
        guard.detach();
        return ending;
    }
    match (guard.release().await, ending) {
        // The lock was not this command's to the end, though nobody noticed in time.
        (Ok(Released::NotHeld), Ending::ByItself) => Ending::Lost("it was gone when the command ended"),
        (Ok(_), ending) => ending,
        (Err(error), ending) => {
            eprintln!("leasehold: {:#}", anyhow::Error::from(error));
            ending
        }
    }
}

impl Outcome {
    fn report(self) -> ExitCode {
        match self {
            Self::Ran(status, Ending::ByItself) => ExitCode::from(code_of(status)),
            Self::Ran(status, Ending::Lost(why)) => {
                eprintln!("leasehold: lost the lock: {why} (the command ended with {status})");
                ExitCode::from(LOST)
            }
            Self::Busy(busy) => {
                eprintln!("leasehold: {}", crate::lock::busy(&busy));
                ExitCode::from(NOT_OBTAINED)
            }
            Self::Interrupted(signal) => ExitCode::from(128 + signal as u8),
        }
    }
}

/// The command's own code, or 128 + n as shells have it.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
