//! One granted lease as this process knows it: how long it is safe to go on, and whether it was lost.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::Held;
use crate::clock::Moment;
use crate::error::LostReason;
use crate::lease::{Fence, Grant};

/// Renewals that are due within this go together.
const GO_ALONG_MAX: Duration = Duration::from_millis(250);

/// What the holder may believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// The last word from the store was good.
    Held,
    /// A renewal failed or was not answered. The lease still runs; it is lost at the deadline unless a
    /// renewal gets through.
    Doubtful,
    /// It is over. Somebody else may have the lock.
    Lost,
}

/// Whether the keeper renews a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    Off,
    /// At a third of its length, for so long in all.
    Until(Duration),
}

/// A lease, shared by its guard and the keeper.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) id: u64,
    pub(crate) held: Held,
    pub(crate) fences: Option<Vec<Fence>>,
    /// When it was asked for.
    pub(crate) since: Moment,
    /// It is not renewed beyond this.
    pub(crate) ends_at_most: Moment,
    pub(crate) renews: bool,
    /// The holder must have stopped by then; nanoseconds since boot.
    deadline: AtomicU64,
    /// When the keeper looks at it next; written under the registry's lock.
    pub(super) due: AtomicU64,
    doubtful: AtomicBool,
    lost: OnceLock<LostReason>,
    pub(crate) lost_signal: Notify,
}

impl Tenure {
    /// A lease that was granted to a request sent at `since`.
    pub(crate) fn new(id: u64, held: Held, grant: Grant, since: Moment, renewal: Renewal) -> Self {
        let usable = grant.remaining.min(held.ttl.length()).saturating_sub(held.ttl.margin());
        let (renews, hold_max) = match renewal {
            Renewal::Off => (false, usable),
            Renewal::Until(hold_max) => (true, hold_max),
        };
        let ends_at_most = since + hold_max;
        let deadline = (since + usable).min(ends_at_most);
        Self {
            id,
            held,
            fences: grant.fences,
            since,
            ends_at_most,
            renews,
            deadline: AtomicU64::new(deadline.as_nanos()),
            due: AtomicU64::new(0),
            doubtful: AtomicBool::new(false),
            lost: OnceLock::new(),
            lost_signal: Notify::new(),
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Judged by the clock as well as by what the keeper knows, so it is right also when the keeper was
    /// held up.
    pub(crate) fn state(&self, now: Moment) -> LeaseState {
        if self.lost.get().is_some() || now >= self.deadline() {
            LeaseState::Lost
        } else if self.doubtful.load(Ordering::Acquire) {
            LeaseState::Doubtful
        } else {
            LeaseState::Held
        }
    }

    /// False when it is not meant to be renewed, or not any longer.
    pub(crate) fn may_be_renewed(&self, now: Moment) -> bool {
        self.renews && now < self.deadline() && self.deadline() < self.ends_at_most
    }

    /// When to renew a lease that was granted or renewed by a request sent at `sent`.
    pub(crate) fn renews_at(&self, sent: Moment) -> Moment {
        if self.may_be_renewed(sent) {
            (sent + self.held.ttl.length() / 3).min(self.deadline())
        } else {
            self.deadline()
        }
    }

    /// True when it is due so soon that it is renewed together with others now: one call for many costs less than
    /// a call for each. Never when it stands there to be declared lost.
    pub(crate) fn may_go_along(&self, due: Moment, now: Moment) -> bool {
        let soon = (self.held.ttl.length() / 30).min(GO_ALONG_MAX);
        due < self.deadline() && due <= now + soon
    }

    /// A renewal that was sent at `sent` got through. False when the lease was over before its answer came: its holder may
    /// have been told so, and what is over does not come back.
    pub(crate) fn extended(&self, sent: Moment, now: Moment) -> bool {
        if self.deadline() <= now {
            return false;
        }
        let ttl = self.held.ttl;
        let deadline = (sent + (ttl.length() - ttl.margin())).min(self.ends_at_most);
        self.deadline.fetch_max(deadline.as_nanos(), Ordering::AcqRel);
        self.doubtful.store(false, Ordering::Release);
        true
    }

    pub(crate) fn doubt(&self) {
        self.doubtful.store(true, Ordering::Release);
    }

    /// Marks it as lost and tells the holder. Returns whether this was the first time.
    pub(crate) fn lose(&self, reason: LostReason) -> bool {
        let first = self.lost.set(reason).is_ok();
        self.lost_signal.notify_waiters();
        first
    }

    pub(crate) fn lost_reason(&self) -> Option<LostReason> {
        self.lost.get().copied()
    }

    /// Why it is over when only the clock says so.
    pub(crate) fn reason_by_clock(&self) -> LostReason {
        if self.renews && self.deadline() >= self.ends_at_most {
            LostReason::HeldTooLong
        } else {
            LostReason::NotRenewed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Order;
    use crate::lease::Ttl;
    use crate::name::Names;
    use crate::owner::Owner;

    #[test]
    fn lease_is_renewed_at_a_third_of_its_length_until_its_time_is_up() {
        let ttl = Ttl::new(Duration::from_secs(30)).unwrap();
        let held =
            Held { names: Names::try_from("a").unwrap(), owner: Owner::random(None), ttl, order: Order::Any };
        let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
        let new = |renewal| {
            let grant = Grant { fences: None, remaining: ttl.length() };
            Tenure::new(1, held.clone(), grant, at(100), renewal)
        };
        let tenure = new(Renewal::Until(Duration::from_secs(60)));
        assert_eq!(tenure.renews_at(at(100)), at(110));
        assert!(tenure.extended(at(110), at(111)));
        assert_eq!(tenure.renews_at(at(110)), at(120));
        assert!(tenure.extended(at(130), at(131)) && tenure.extended(at(150), at(151)));
        assert_eq!(
            (tenure.deadline(), tenure.renews_at(at(150))),
            (at(160), at(160)),
            "never beyond the cap"
        );
        assert!(!tenure.extended(at(159), at(160)), "over is over");
        let once = new(Renewal::Off);
        assert_eq!(once.renews_at(at(100)), once.deadline());
    }
}
