//! Requests that may still be on their way when their owner is done.
//!
//! What went over a connection that is lost may reach the store after the release, and nobody would give it back. So an
//! acquisition that had a request without an answer is released again later, and one that was let go of by its guard is
//! remembered until its owner releases it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::registry::Release;
use crate::backend::Held;
use crate::clock::Moment;
use crate::lease::Ttl;
use crate::owner::Owner;

/// Nothing arrives later than this: a system that was told to close a connection gives up sending before.
const LATE_MAX: Duration = Duration::from_secs(120);
/// Most owners that are remembered; the oldest go first.
const OWNERS_MAX: usize = 10_000;

/// Owners without a guard that had a request without an answer.
#[derive(Debug, Default)]
pub(super) struct Unsure {
    /// How long a lease the request would take.
    ttls: HashMap<Owner, Ttl>,
    by_age: VecDeque<(Moment, Owner)>,
}

/// Releases that are only for requests that come late. Nobody waits for them.
#[derive(Debug, Default)]
pub(super) struct LateReleases {
    by_time: BTreeMap<(Moment, u64), Release>,
    of: HashMap<Owner, (Moment, u64)>,
    next_id: u64,
}

impl Unsure {
    pub(super) fn note(&mut self, held: &Held, now: Moment) {
        self.forget(now);
        self.ttls.insert(held.owner.clone(), held.ttl);
        self.by_age.push_back((now, held.owner.clone()));
    }

    /// How long a lease a request of this owner that is still on its way would take.
    pub(super) fn take(&mut self, owner: &Owner, now: Moment) -> Option<Ttl> {
        self.forget(now);
        self.ttls.remove(owner)
    }

    /// Makes room for one more, and drops what is too old.
    fn forget(&mut self, now: Moment) {
        while let Some((noted, owner)) = self.by_age.front() {
            if self.by_age.len() < OWNERS_MAX && now.since(*noted) < LATE_MAX {
                break;
            }
            self.ttls.remove(owner);
            self.by_age.pop_front();
        }
    }
}

impl LateReleases {
    /// Beyond the most there may be, those that are due first go: what they wait for has most likely come.
    pub(super) fn insert(&mut self, release: Release) {
        self.take(&release.held.owner);
        if self.by_time.len() >= OWNERS_MAX
            && let Some((_, first)) = self.by_time.pop_first()
        {
            self.of.remove(&first.held.owner);
        }
        let key = (release.not_before, self.next_id);
        self.next_id += 1;
        self.of.insert(release.held.owner.clone(), key);
        self.by_time.insert(key, release);
    }

    pub(super) fn take(&mut self, owner: &Owner) -> Option<Release> {
        let key = self.of.remove(owner)?;
        self.by_time.remove(&key)
    }

    pub(super) fn has(&self, owner: &Owner) -> bool {
        self.of.contains_key(owner)
    }

    /// One that is due.
    pub(super) fn pop_due(&mut self, now: Moment) -> Option<Release> {
        self.next().filter(|next| *next <= now)?;
        let (_, release) = self.by_time.pop_first()?;
        self.of.remove(&release.held.owner);
        Some(release)
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Moment> {
        self.by_time.first_key_value().map(|(&(due, _), _)| due)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Order;
    use crate::name::Names;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn held() -> Held {
        let (names, ttl) = (Names::try_from("job").unwrap(), Ttl::new(Duration::from_secs(60)).unwrap());
        Held { names, owner: Owner::random(None), ttl, order: Order::Any }
    }

    #[test]
    fn owners_are_remembered_once_and_as_long_as_their_requests_may_arrive() {
        let (mut unsure, one, other) = (Unsure::default(), held(), held());
        unsure.note(&one, at(0));
        unsure.note(&other, at(60));
        assert_eq!(unsure.take(&one.owner, at(61)), Some(one.ttl));
        assert_eq!(unsure.take(&one.owner, at(61)), None, "once");
        assert_eq!(unsure.take(&other.owner, at(181)), None, "nothing arrives so late");
        let first = held();
        unsure.note(&first, at(200));
        for _ in 0..OWNERS_MAX {
            unsure.note(&held(), at(200));
        }
        assert_eq!(unsure.ttls.len(), OWNERS_MAX);
        assert_eq!(unsure.take(&first.owner, at(200)), None, "the oldest goes");
    }

    #[test]
    fn late_releases_are_bounded_and_come_when_they_are_due() {
        let (mut late, one) = (LateReleases::default(), held());
        late.insert(Release::granted(one.clone(), at(1)));
        late.insert(Release::granted(one.clone(), at(5)));
        assert_eq!(late.next(), Some(at(5)), "one for an owner");
        assert!(late.pop_due(at(4)).is_none());
        assert!(late.pop_due(at(5)).is_some() && late.is_empty() && late.take(&one.owner).is_none());
        for _ in 0..OWNERS_MAX + 3 {
            late.insert(Release::granted(held(), at(7)));
        }
        assert_eq!((late.by_time.len(), late.of.len()), (OWNERS_MAX, OWNERS_MAX));
    }
}
