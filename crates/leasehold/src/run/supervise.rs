//! Watches over the command and its lease: asks it to stop in time, and kills it before it is too late.

use std::time::Duration;

use leasehold_lock::{Clock, Guard, LostReason, Moment};
use rustix::process::Signal;
use tokio::signal::unix::Signal as Signals;

use super::child::Child;
use super::forward::Forwarded;

/// Timers stand still while the machine is suspended, so the lease is looked at again and again.
const LOOK_AFTER_MIN: Duration = Duration::from_millis(5);
const LOOK_AFTER_MAX: Duration = Duration::from_millis(250);

const MAX_HOLD_IS_OVER: &str = "--max-hold is over";
const NOT_RENEWED: &str = "it could not be renewed in time";

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) ttl: Duration,
    pub(super) grace: Duration,
    pub(super) max_hold: Duration,
}

/// Why the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// It was not this program that ended it.
    ByItself,
    /// It was stopped, because of this.
    Lost(&'static str),
}

/// How far the command has been stopped.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Running,
    /// It was asked to stop and is killed by then at the latest.
    Asked(Moment, &'static str),
    Killed(&'static str),
}

impl Plan {
    /// How much of the lease must be left when the command is asked to stop. Renewals begin when two thirds are
    /// left, so they have had a third of the lease to get through. What is left is never more than of `--max-hold`.
    fn lead(&self) -> Duration {
        self.lead_of_hold().min(self.ttl / 3)
    }

    /// The same for the longest time that it may run, which leaves all of the grace.
    fn lead_of_hold(&self) -> Duration {
        self.grace.min(self.max_hold / 3)
    }
}

/// Returns when the command has ended. What it started may still run, and it is not collected.
pub(super) async fn until_end(
    child: &mut Child,
    guard: &Guard,
    signals: &mut Forwarded,
    deaths: &mut Signals,
    plan: &Plan,
) -> Ending {
    let clock = Clock::system();
    let asked_at = clock.now() + (plan.max_hold - plan.lead_of_hold());
    let mut stage = Stage::Running;
    while !child.has_ended() {
        let (now, left) = (clock.now(), guard.time_left());
        child.may_run_as_long_as(guard);
        child.refuse_to_be_suspended();
        stage = advance(stage, now, left, asked_at, child, guard, plan);
        let to_next = match stage {
            Stage::Running => left.saturating_sub(plan.lead()).min(asked_at.since(now)),
            Stage::Asked(killed_at, _) => left.min(killed_at.since(now)),
            Stage::Killed(_) => LOOK_AFTER_MAX,
        };
        let look_after = (plan.ttl / 20).clamp(LOOK_AFTER_MIN, LOOK_AFTER_MAX);
        tokio::select! {
            _ = deaths.recv() => {}
            signal = signals.next() => child.signal(signal),
            _ = guard.lost(), if matches!(stage, Stage::Running | Stage::Asked(..)) => {}
            () = tokio::time::sleep(to_next.clamp(Duration::from_millis(1), look_after)) => {}
        }
    }
    match stage {
        Stage::Running => Ending::ByItself,
        Stage::Asked(_, why) | Stage::Killed(why) => Ending::Lost(why),
    }
}

/// Asks or kills, if it is time for that.
fn advance(
    stage: Stage,
    now: Moment,
    left: Duration,
    asked_at: Moment,
    child: &Child,
    guard: &Guard,
    plan: &Plan,
) -> Stage {
    match stage {
        Stage::Running if left.is_zero() => {
            child.signal(Signal::KILL);
            Stage::Killed(reason(guard))
        }
        Stage::Running if now >= asked_at => ask(child, now + plan.lead_of_hold(), MAX_HOLD_IS_OVER),
        Stage::Running if left <= plan.lead() => {
            // A lease is not renewed beyond the longest time, so that is when it ends.
            let by_max_hold = asked_at.since(now) <= plan.lead();
            ask(child, now + plan.lead(), if by_max_hold { MAX_HOLD_IS_OVER } else { NOT_RENEWED })
        }
        Stage::Asked(killed_at, why) if left.is_zero() || now >= killed_at => {
            child.signal(Signal::KILL);
            Stage::Killed(why)
        }
        same => same,
    }
}

fn ask(child: &Child, killed_at: Moment, why: &'static str) -> Stage {
    eprintln!("leasehold: asking the command to stop: {why}");
    child.signal(Signal::TERM);
    // One that was stopped would not hear it.
    child.signal(Signal::CONT);
    Stage::Asked(killed_at, why)
}

fn reason(guard: &Guard) -> &'static str {
    match guard.check() {
        Err(leasehold_lock::LockError::Lost { reason: LostReason::Gone, .. }) => "the store gave it away",
        Err(leasehold_lock::LockError::Lost { reason: LostReason::HeldTooLong, .. }) => MAX_HOLD_IS_OVER,
        _ => NOT_RENEWED,
    }
}
