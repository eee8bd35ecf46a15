//! What the keeper has to do and when: leases to renew, leases to declare lost, names to give back.
//!
//! Everything here is short work under one lock. Guards and abandoned acquisitions only write a line into
//! it, which is why dropping them never blocks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::tenure::Tenure;
use crate::backend::Held;
use crate::clock::Moment;
use crate::owner::Owner;

/// Most releases that wait for the store. Beyond it the oldest are left to end by themselves.
const RELEASES_MAX: usize = 10_000;

/// Timers stand still while the machine is suspended, so the keeper looks at the real time at least this
/// often.
const TICK: Duration = Duration::from_millis(250);

/// An abandoned acquisition is released at once and then again: its request may still be on its way.
const RELEASE_AGAIN_AFTER: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
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
    /// Whose releases the keeper is busy with.
    releasing: Vec<Owner>,
    /// When the keeper looks next by itself.
    sleeps_until: Option<Moment>,
    closing: bool,
}

/// Names to give back.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) held: Held,
    not_before: Moment,
    /// Passes that remain although the store has answered, because a request may still be on its way.
    passes: &'static [Duration],
    tries: u32,
    /// By then the lease has ended by itself.
    ends: Moment,
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
        Self { held, not_before: now, passes: &[], tries: 0, ends }
    }

    /// Of an acquisition whose outcome nobody saw.
    pub(crate) fn abandoned(held: Held, now: Moment) -> Self {
        let ends = now + held.ttl.length();
        Self { held, not_before: now, passes: &RELEASE_AGAIN_AFTER, tries: 0, ends }
    }

    /// `None` when it is over. Without an answer it goes on until the lease has ended by itself, or, when the
    /// locker is gone, for a while.
    fn again(mut self, now: Moment, answered: bool, closing: bool) -> Option<Self> {
        if answered {
            let (pause, rest) = self.passes.split_first()?;
            self.not_before = now + *pause;
            self.passes = rest;
            return Some(self);
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
        if let Some(at) = inner.releasing.iter().position(|owner| *owner == release.held.owner) {
            inner.releasing.swap_remove(at);
        }
        let closing = inner.closing;
        inner.releases.extend(release.again(now, answered, closing));
        drop(inner);
        self.release_ended.notify_waiters();
    }

    /// Takes back an owner's releases that have not begun, and waits for those that have: an owner that asks
    /// again after it gave up must not lose to its own past.
    pub(crate) async fn reclaim(&self, owner: &Owner) {
        loop {
            let ended = self.release_ended.notified();
            let mut ended = std::pin::pin!(ended);
            ended.as_mut().enable();
            {
                let mut inner = self.lock();
                inner.releases.retain(|release| release.held.owner != *owner);
                if !inner.releasing.contains(owner) {
                    return;
                }
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
        inner.releasing.extend(turn.releases.iter().map(|release| release.held.owner.clone()));
        let first_due = inner.due.first_key_value().map(|(&(due, _), _)| due);
        let first_release = inner.releases.iter().map(|release| release.not_before).min();
        turn.next = first_due.into_iter().chain(first_release).fold(turn.next, Moment::min);
        inner.sleeps_until = Some(turn.next);
        turn.finished =
            inner.closing && inner.due.is_empty() && inner.releases.is_empty() && inner.releasing.is_empty();
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

    /// True while leases are watched over or names wait to be given back.
    pub(crate) fn is_busy(&self) -> bool {
        let inner = self.lock();
        !inner.due.is_empty() || !inner.releases.is_empty() || !inner.releasing.is_empty()
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
}
