//! What a store grants: a lease, its length, and how far it can be trusted.

use std::time::Duration;

pub use leasehold_core::Fence;

use crate::name::LockName;

/// The shortest lease.
pub const TTL_MIN: Duration = Duration::from_millis(10);
/// The longest lease. Longer work renews.
pub const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a lease lasts unless it is renewed, in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(Duration);

/// A length that no lease can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lease lasts from 10 ms to 24 h")]
pub struct BadTtl;

/// What a grant is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// The grant carries a fence that no other grant of the same name has, and that is higher than every earlier one,
    /// whatever clocks and pauses do. A resource that checks it is safe. (A Redis master that is cut off may go on granting
    /// for a moment after its successor has begun. Its fences are lower, so the resource turns those late ones away.)
    Fenced,
    /// One owner at a time as long as the store keeps its memory and clocks run evenly. No fence.
    Lease,
    /// Two owners are possible after events that the store does not report. For saving work only.
    BestEffort,
}

/// A store's own words about what it grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guarantees {
    /// The level of every grant.
    pub level: Guarantee,
    /// Under which assumptions, in a sentence or two.
    pub because: &'static str,
}

/// A lease was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// One fence per name, in the order of the names; `None` where the store has none.
    pub fences: Option<Vec<Fence>>,
    /// How much of the lease is left at most, counted from the moment the request was sent.
    pub remaining: Duration,
}

/// Somebody else has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// Which of the names is taken.
    pub name: LockName,
    /// When the present lease ends unless it is renewed; `None` when it has no end or the store cannot tell.
    pub remaining: Option<Duration>,
    /// How many wait before the caller, in a queue that keeps order.
    pub ahead: Option<u32>,
}

/// A lease as others may see it. The owner's token is not part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// What is locked.
    pub name: LockName,
    /// Who holds it, in words of the holder's.
    pub label: Option<String>,
    /// How long ago it was acquired, by the holder's clock where the store does not know.
    pub age: Option<Duration>,
    /// When it ends unless it is renewed.
    pub remaining: Option<Duration>,
    /// The fence, where there is one.
    pub fence: Option<Fence>,
    /// How many wait in the store's queue; `None` where it keeps none.
    pub waiters: Option<u32>,
}

impl Ttl {
    /// Takes a length that a lease can have.
    pub fn new(length: Duration) -> Result<Self, BadTtl> {
        if !(TTL_MIN..=TTL_MAX).contains(&length) {
            return Err(BadTtl);
        }
        Ok(Self(Duration::from_millis(u64::try_from(length.as_millis()).map_err(|_| BadTtl)?)))
    }

    /// The length.
    pub fn length(self) -> Duration {
        self.0
    }

    /// The length in milliseconds.
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// How much of the lease is not used: two clocks may run apart by a hundredth, and a holder needs time
    /// to stop before the next one starts.
    pub fn margin(self) -> Duration {
        let drift = self.0 / 100 + Duration::from_millis(2);
        let to_stop = (self.0 / 20).clamp(Duration::from_millis(1), Duration::from_secs(1));
        drift + to_stop
    }
}

impl Guarantee {
    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fenced => "fenced",
            Self::Lease => "lease",
            Self::BestEffort => "best-effort",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttl_is_bounded_and_leaves_time_to_stop() {
        assert_eq!(Ttl::new(Duration::ZERO), Err(BadTtl));
        assert_eq!(Ttl::new(Duration::MAX), Err(BadTtl));
        for millis in [10, 500, 30_000, 86_400_000] {
            let ttl = Ttl::new(Duration::from_millis(millis)).unwrap();
            assert!(ttl.margin() < ttl.length() / 2, "{ttl:?}");
            let drift = ttl.length() / 100 + Duration::from_millis(2);
            assert!(
                ttl.margin() > drift,
                "clocks that run apart by a hundredth leave no time to stop: {ttl:?}"
            );
        }
    }
}
