//! What the keeper has to do and when: leases to renew, leases to declare lost, names to give back.
//!
//! Everything here is short work under one lock. Guards and abandoned acquisitions only write a line into
//! it, which is why dropping them never blocks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::late::{LateReleases, Unsure};
use super::tenure::Tenure;
use crate::backend::Held;
use crate::clock::Moment;
use crate::lease::Ttl;
use crate::owner::Owner;

/// Most releases that wait for the store. Beyond it the oldest are left to end by themselves.
const RELEASES_MAX: usize = 10_000;

/// Timers stand still while the machine is suspended, so the keeper looks at the real time at least this
/// often.
const TICK: Duration = Duration::from_millis(250);

/// An abandoned acquisition is released at once and then again: its request may still be on its way.
const RELEASE_AGAIN_AFTER: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// One whose request had no answer is released still later, while the lease would last: after about 5, 30 and 120 s.
const RELEASE_LATE_AFTER: [Duration; 3] =
    [Duration::from_secs(4), Duration::from_secs(25), Duration::from_secs(90)];
/// A release without an answer is tried again so often when nobody can use the names any more.
const RELEASE_TRIES_MAX: u32 = 8;

#[derive(Debug, Default)]
pub(crate) struct Registry {
    inner: Mutex<Inner>,
    pub(crate) wake: Notify,
    /// A release was answered, or not.
    release_ended: Notify,
    keeper_runs: AtomicBool,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    due: BTreeMap<(Moment, u64), Arc<Tenure>>,
    releases: VecDeque<Release>,
    late: LateReleases,
    unsure: Unsure,
    /// Whose releases the keeper is busy with, and whether somebody waits for them.
    releasing: Vec<(Owner, Awaited)>,
    /// When the keeper looks next by itself.
    sleeps_until: Option<Moment>,
    closing: bool,
}

/// Names to give back.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) held: Held,
    pub(super) not_before: Moment,
    /// Passes that remain although the store has answered, because a request may still be on its way.
    passes: &'static [Duration],
    /// Those that remain after them.
    late_passes: &'static [Duration],
    awaited: Awaited,
    tries: u32,
    /// By then the lease has ended by itself.
    ends: Moment,
}

/// Whether the end of a release is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Yes,
    /// It is for requests that come late, if any do.
    No,
}

/// What is to be done now.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) due: Vec<Arc<Tenure>>,
    pub(crate) releases: Vec<Release>,
    /// When to look again.
    pub(crate) next: Moment,
    pub(crate) finished: bool,
}

impl Release {
    /// Of a lease that was granted.
    pub(crate) fn granted(held: Held, now: Moment) -> Self {
        let ends = now + held.ttl.length();
        let (passes, late_passes, awaited): (&[_], &[_], _) = (&[], &[], Awaited::Yes);
        Self { held, not_before: now, passes, late_passes, awaited, tries: 0, ends }
    }

    /// Of an acquisition whose outcome nobody saw.
    pub(crate) fn abandoned(held: Held, now: Moment) -> Self {
        Self { passes: &RELEASE_AGAIN_AFTER, ..Self::granted(held, now) }
    }

    /// Of one that had a request without an answer, which may arrive late.
    pub(crate) fn unanswered(held: Held, now: Moment) -> Self {
        Self { late_passes: &RELEASE_LATE_AFTER, ..Self::abandoned(held, now) }
    }

    /// `None` when it is over. Without an answer it goes on until the lease has ended by itself, or, when the
    /// locker is gone, for a while.
    fn again(mut self, now: Moment, answered: bool, closing: bool) -> Option<Self> {
        if answered {
            if let Some((pause, rest)) = self.passes.split_first() {
                (self.not_before, self.passes) = (now + *pause, rest);
                return Some(self);
            }
            let (pause, rest) = self.late_passes.split_first()?;
            (self.not_before, self.late_passes) = (now + *pause, rest);
            (self.awaited, self.tries) = (Awaited::No, 0);
            return (self.not_before < self.ends).then_some(self);
        }
        self.tries += 1;
        self.not_before = now + Duration::from_millis(50) * 2u32.pow(self.tries.min(6));
        let tries_max = if closing { RELEASE_TRIES_MAX } else { u32::MAX };
        (now < self.ends && self.tries < tries_max).then_some(self)
    }
}

impl Registry {
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Has the keeper look at a lease at `due`.
    pub(crate) fn watch_over(&self, tenure: &Arc<Tenure>, due: Moment) {
        let mut inner = self.lock();
        tenure.due.store(due.as_nanos(), Ordering::Relaxed);
        inner.due.insert((due, tenure.id), tenure.clone());
        let sooner = inner.sleeps_until.is_none_or(|until| due < until);
        drop(inner);
        if sooner {
            self.wake.notify_one();
        }
    }

    /// The same for one that it already watches over; nothing when it was given back meanwhile.
    pub(crate) fn reschedule(&self, tenure: &Arc<Tenure>, due: Moment) {
        let mut inner = self.lock();
        let old = Moment::from_nanos(tenure.due.load(Ordering::Relaxed));
        if inner.due.remove(&(old, tenure.id)).is_some() {
            tenure.due.store(due.as_nanos(), Ordering::Relaxed);
            inner.due.insert((due, tenure.id), tenure.clone());
        }
    }

    /// The keeper need not look at it any more. False when it did not anyway.
    pub(crate) fn forget(&self, tenure: &Tenure) -> bool {
        let mut inner = self.lock();
        // Only under the lock is it certain where it stands.
        let due = Moment::from_nanos(tenure.due.load(Ordering::Relaxed));
        inner.due.remove(&(due, tenure.id)).is_some()
    }

    /// Hands names to the keeper to give back. Never blocks.
    pub(crate) fn give_back(&self, release: Release) {
        let mut inner = self.lock();
        if inner.releases.len() >= RELEASES_MAX {
            inner.releases.pop_front();
            tracing::warn!("too many locks wait to be released; the oldest ends by itself");
        }
        if !self.keeper_runs.load(Ordering::Acquire) {
            let (names, ttl) = (&release.held.names, release.held.ttl.length());
            tracing::warn!(%names, ?ttl, "no runtime is left to release a lock; it ends by itself");
        }
        inner.releases.push_back(release);
        drop(inner);
        self.wake.notify_one();
    }

    /// Puts a release that is not over back into the queue.
    pub(crate) fn released(&self, release: Release, now: Moment, answered: bool) {
        let mut inner = self.lock();
        let is_it = |(owner, _): &(Owner, _)| *owner == release.held.owner;
        if let Some(at) = inner.releasing.iter().position(is_it) {
            inner.releasing.swap_remove(at);
        }
        let closing = inner.closing;
        match release.again(now, answered, closing) {
            Some(again) if again.awaited == Awaited::No => inner.late.insert(again),
            again => inner.releases.extend(again),
        }
        drop(inner);
        self.release_ended.notify_waiters();
    }

    /// Takes back an owner's releases that have not begun, and waits for those that have: an owner that asks
    /// again after it gave up must not lose to its own past. True when there were any: a request of that past may
    /// still be on its way.
    pub(crate) async fn reclaim(&self, owner: &Owner) -> bool {
        let mut were_any = false;
        loop {
            let ended = self.release_ended.notified();
            let mut ended = std::pin::pin!(ended);
            ended.as_mut().enable();
            {
                let mut inner = self.lock();
                let before = inner.releases.len();
                inner.releases.retain(|release| release.held.owner != *owner);
                were_any |= inner.releases.len() < before || inner.late.take(owner).is_some();
                if !inner.releasing.iter().any(|(releasing, _)| releasing == owner) {
                    return were_any;
                }
                were_any = true;
            }
            ended.await;
        }
    }

    /// What to do at `now`: at most `renewals_max` leases and `releases_max` releases.
    pub(crate) fn turn(&self, now: Moment, renewals_max: usize, releases_max: usize) -> Turn {
        let mut turn = Turn { due: Vec::new(), releases: Vec::new(), next: now + TICK, finished: false };
        let mut inner = self.lock();
        while turn.due.len() < renewals_max {
            match inner.due.first_key_value() {
                Some((&(due, _), tenure)) if due <= now || tenure.may_go_along(due, now) => {
                    turn.due.push(tenure.clone());
                    // It stays until it is lost or given back, so it stands here again at its deadline.
                    let (_, tenure) = inner.due.pop_first().expect("it was just seen");
                    let deadline = tenure.deadline().max(now + Duration::from_nanos(1));
                    tenure.due.store(deadline.as_nanos(), Ordering::Relaxed);
                    inner.due.insert((deadline, tenure.id), tenure);
                }
                _ => break,
            }
        }
        for _ in 0..inner.releases.len() {
            let Some(release) = inner.releases.pop_front() else { break };
            if turn.releases.len() < releases_max && release.not_before <= now {
                turn.releases.push(release);
            } else {
                inner.releases.push_back(release);
            }
        }
        while turn.releases.len() < releases_max
            && let Some(release) = inner.late.pop_due(now)
        {
            turn.releases.push(release);
        }
        let begun = turn.releases.iter().map(|release| (release.held.owner.clone(), release.awaited));
        inner.releasing.extend(begun);
        let first_due = inner.due.first_key_value().map(|(&(due, _), _)| due);
        let first_release = inner.releases.iter().map(|release| release.not_before).min();
        let first_late = inner.late.next();
        turn.next = [first_due, first_release, first_late].into_iter().flatten().fold(turn.next, Moment::min);
        inner.sleeps_until = Some(turn.next);
        let is_idle = inner.due.is_empty() && inner.releases.is_empty() && inner.late.is_empty();
        turn.finished = inner.closing && is_idle && inner.releasing.is_empty();
        turn
    }

    /// Ends the keeper when everything is given back.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.wake.notify_one();
    }

    /// True when this call made the caller the keeper.
    pub(crate) fn begin_keeping(&self) -> bool {
        !self.keeper_runs.load(Ordering::Acquire) && !self.keeper_runs.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_keeping(&self) {
        // Whatever its tasks were doing is not going to be reported.
        let mut inner = self.lock();
        inner.releasing.clear();
        inner.sleeps_until = None;
        drop(inner);
        self.release_ended.notify_waiters();
        self.keeper_runs.store(false, Ordering::Release);
    }

    /// Remembers a lease without a guard that had a request without an answer.
    pub(crate) fn note_unsure(&self, held: &Held, now: Moment) {
        self.lock().unsure.note(held, now);
    }

    /// How long a lease a request of this owner that is still on its way would take, if there may be one.
    pub(crate) fn take_unsure(&self, owner: &Owner, now: Moment) -> Option<Ttl> {
        self.lock().unsure.take(owner, now)
    }

    /// True while leases are watched over or names wait to be given back. What may come late is not waited for.
    pub(crate) fn is_busy(&self) -> bool {
        let inner = self.lock();
        let is_releasing = inner.releasing.iter().any(|(_, awaited)| *awaited == Awaited::Yes);
        !inner.due.is_empty() || !inner.releases.is_empty() || is_releasing
    }

    /// True while there is a release of this owner, under way or to come.
    pub(crate) fn is_giving_back(&self, owner: &Owner) -> bool {
        let inner = self.lock();
        inner.releases.iter().any(|release| release.held.owner == *owner)
            || inner.releasing.iter().any(|(releasing, _)| releasing == owner)
            || inner.late.has(owner)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Order;
    use crate::lease::Ttl;
    use crate::name::Names;

    #[test]
    fn releases_that_wait_are_bounded_and_the_oldest_go() {
        let (registry, now) = (Registry::default(), Moment::from_nanos(1));
        let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        for number in 0..RELEASES_MAX + 3 {
            let names = Names::try_from(format!("job-{number}")).unwrap();
            let held = Held { names, owner: Owner::random(None), ttl, order: Order::Any };
            registry.give_back(Release::granted(held, now));
        }
        let releases = registry.turn(now, 0, usize::MAX).releases;
        assert_eq!(releases.len(), RELEASES_MAX);
        assert_eq!(releases[0].held.names.first().as_str(), "job-3");
    }

    /// Without an answer a release goes on until its lease is over, or, when the locker is gone, a few times.
    #[test]
    fn release_without_an_answer_is_tried_until_the_lease_is_over() {
        let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
        let held =
            Held { names: "job".try_into().unwrap(), owner: Owner::random(None), ttl, order: Order::Any };
        for (closing, tries) in [(false, 60 / 4..60), (true, 7..8)] {
            let mut now = Moment::from_nanos(1);
            let mut release = Some(Release::granted(held.clone(), now));
            let mut tried = 0;
            while let Some(again) = release.take().and_then(|release| release.again(now, false, closing)) {
                assert!(now < again.ends);
                now = again.not_before;
                release = Some(again);
                tried += 1;
            }
            assert!(tries.contains(&tried), "closing {closing}: tried {tried} times");
        }
    }

    /// What had no answer is released again while its lease would last, and nobody waits for the late ones.
    #[test]
    fn what_had_no_answer_is_released_late_too_as_long_as_its_lease_would_last() {
        let began = Moment::from_nanos(1);
        for (length, late) in [(2, &[][..]), (10, &[5]), (60, &[5, 30]), (3_600, &[5, 30, 120])] {
            let ttl = Ttl::new(Duration::from_secs(length)).unwrap();
            let held =
                Held { names: "job".try_into().unwrap(), owner: Owner::random(None), ttl, order: Order::Any };
            let (registry, mut now, mut passes) = (Registry::default(), began, Vec::new());
            registry.give_back(Release::unanswered(held, now));
            while now < began + Duration::from_secs(3_700) {
                let mut turn = registry.turn(now, 0, 1);
                if let Some(release) = turn.releases.pop() {
                    let pass = now.since(began);
                    assert_eq!(registry.is_busy(), pass < Duration::from_secs(2), "at {pass:?}");
                    registry.released(release, now, true);
                    passes.push(pass.as_secs());
                }
                now = registry.turn(now, 0, 0).next.max(now + Duration::from_millis(1));
            }
            assert_eq!(passes, [&[0, 0, 1], late].concat(), "of a lease of {length} s");
        }
    }

    /// An owner that asks again is not released by what was left of its past, and knows that it has one.
    #[tokio::test]
    async fn an_owner_that_asks_again_takes_back_its_late_releases() {
        let (registry, now) = (Registry::default(), Moment::from_nanos(1));
        let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
        let held =
            Held { names: "job".try_into().unwrap(), owner: Owner::random(None), ttl, order: Order::Any };
        assert!(!registry.reclaim(&held.owner).await);
        registry.give_back(Release::unanswered(held.clone(), now));
        for pass in [0, 1, 3] {
            let now = now + Duration::from_secs(pass);
            let release = registry.turn(now, 0, 1).releases.pop().unwrap();
            registry.released(release, now, true);
        }
        assert!(!registry.is_busy() && registry.reclaim(&held.owner).await);
        assert!(registry.turn(now + Duration::from_secs(50), 0, 1).releases.is_empty());
    }
}
