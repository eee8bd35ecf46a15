//! Releases that a server has not answered.
//!
//! What was sent to a server that stands still may reach it much later: a vote after the release that was
//! meant to take it back. So a release is owed to each server until it answers, and is sent again until
//! then. While a server is owed the release of an owner, it has no vote for that owner: a late release would
//! take away what it gave.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;

use super::Inner;
use crate::backend::Held;
use crate::clock::Moment;
use crate::owner::Owner;

/// A release without an answer is sent again after this, and again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Beyond so many, those that would end first are left to end by themselves: so many at once, because they have to be
/// looked for among all.
const DEBTS_MAX: usize = 10_000;
const DEBTS_LEFT_AT_ONCE: usize = 1_000;
/// Releases sent again at the same time.
const AT_ONCE_MAX: usize = 64;

/// What is owed to which server.
#[derive(Debug, Default)]
pub(super) struct Debts {
    owed: Mutex<Owed>,
}

#[derive(Debug, Default)]
struct Owed {
    debts: HashMap<(usize, Owner), Debt>,
    /// Somebody collects them. Under the same lock as the debts: whoever finds none stops, and whoever owes one after
    /// that begins.
    is_collected: bool,
}

#[derive(Debug, Clone)]
struct Debt {
    held: Held,
    due: Moment,
    /// By then the lease has ended by itself.
    ends: Moment,
    sent: Sent,
}

/// How often the release was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    Once,
    /// It went without an answer for a while, so there is one more after the answer.
    Again,
    /// That one more.
    OnceMore,
}

/// Says that nobody collects any more when the runtime drops the task before it is done.
struct Collecting {
    inner: Arc<Inner>,
    is_done: bool,
}

impl Collecting {
    /// Nothing was owed, and under the same lock it was said that nobody collects.
    fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        if !self.is_done {
            self.inner.debts.owed().is_collected = false;
        }
    }
}

impl Debts {
    /// Notes that all servers are owed the release of a lease.
    pub(super) fn owe(&self, servers: usize, held: &Held, now: Moment) {
        let debt = Debt {
            held: held.clone(),
            due: now + AGAIN_AFTER,
            ends: now + held.ttl.length(),
            sent: Sent::Once,
        };
        let owed = &mut self.owed().debts;
        if owed.len() + servers > DEBTS_MAX {
            let mut ends: Vec<Moment> = owed.values().map(|debt| debt.ends).collect();
            let last = *ends.select_nth_unstable(DEBTS_LEFT_AT_ONCE).1;
            owed.retain(|_, debt| last < debt.ends);
            let left = ends.len() - owed.len();
            tracing::warn!(
                left,
                "too many releases have no answer; those of the leases that end first are left"
            );
        }
        for node in 0..servers {
            let key = (node, held.owner.clone());
            let was_late = owed.get(&key).is_some_and(|debt| debt.sent == Sent::Again);
            let sent = if was_late { Sent::Again } else { Sent::Once };
            owed.insert(key, Debt { sent, ..debt.clone() });
        }
    }

    /// True while a server has not answered the release of this owner.
    pub(super) fn is_owed(&self, node: usize, owner: &Owner) -> bool {
        self.owed().debts.contains_key(&(node, owner.clone()))
    }

    /// True while any server has not answered a release.
    pub(super) fn is_any(&self) -> bool {
        !self.owed().debts.is_empty()
    }

    /// The server has answered the release.
    pub(super) fn paid(&self, node: usize, owner: &Owner, now: Moment) {
        let owed = &mut self.owed().debts;
        if let Some(debt) = owed.get_mut(&(node, owner.clone())) {
            match debt.sent {
                // What it was sent before may still come after this.
                Sent::Again => (debt.sent, debt.due) = (Sent::OnceMore, now + AGAIN_AFTER),
                Sent::Once | Sent::OnceMore => drop(owed.remove(&(node, owner.clone()))),
            }
        }
    }

    /// True when this call made the caller the one who collects.
    fn begin_collecting(&self) -> bool {
        !std::mem::replace(&mut self.owed().is_collected, true)
    }

    /// What is to be sent again now; and when to look next, or `None` when nothing is owed, which ends the collecting.
    fn due(&self, now: Moment) -> (Vec<(usize, Debt)>, Option<Moment>) {
        let mut owed = self.owed();
        owed.debts.retain(|_, debt| now < debt.ends);
        let mut due = Vec::new();
        for ((node, _), debt) in owed.debts.iter_mut().filter(|(_, debt)| debt.due <= now).take(AT_ONCE_MAX) {
            debt.due = now + AGAIN_AFTER;
            if debt.sent == Sent::Once {
                debt.sent = Sent::Again;
            }
            due.push((*node, debt.clone()));
        }
        let next = owed.debts.values().map(|debt| debt.due).min();
        owed.is_collected &= next.is_some();
        (due, next)
    }

    fn owed(&self) -> MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Has releases without an answer sent again, by one task that ends when nothing is owed.
    pub(super) fn collect_debts(self: &Arc<Self>) {
        if self.debts.begin_collecting() {
            let inner = self.clone();
            let collecting = Collecting { inner: inner.clone(), is_done: false };
            tokio::spawn(async move {
                let inner = &inner;
                loop {
                    let now = inner.clock.now();
                    let (due, next) = inner.debts.due(now);
                    let Some(next) = next else { return collecting.done() };
                    if due.is_empty() {
                        tokio::time::sleep(next.since(now).max(Duration::from_millis(1))).await;
                        continue;
                    }
                    join_all(due.iter().map(|(node, debt)| async move {
                        let again = inner.release_on(*node, &debt.held);
                        // Without an answer it is still owed.
                        let _ = tokio::time::timeout(AGAIN_AFTER, again).await;
                    }))
                    .await;
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Order;
    use crate::lease::Ttl;
    use crate::name::Names;

    #[test]
    fn a_release_that_was_answered_late_is_sent_once_more_and_then_no_more() {
        let debts = Debts::default();
        let (names, ttl) = (Names::try_from("job").unwrap(), Ttl::new(Duration::from_secs(60)).unwrap());
        let held = Held { names, owner: Owner::random(None), ttl, order: Order::Any };
        let at = |millis: u64| Moment::from_nanos(millis * 1_000_000);
        debts.owe(2, &held, at(0));
        debts.paid(0, &held.owner, at(5));
        assert!(!debts.is_owed(0, &held.owner) && debts.is_owed(1, &held.owner));
        assert!(debts.due(at(500)).0.is_empty(), "an answer may still come");
        for sent_at in [1_000, 2_000] {
            assert_eq!(debts.due(at(sent_at)).0.len(), 1, "sent until it is answered");
        }
        debts.paid(1, &held.owner, at(2_005));
        assert!(debts.due(at(2_500)).0.is_empty());
        assert_eq!(debts.due(at(3_005)).0.len(), 1, "once more");
        debts.paid(1, &held.owner, at(3_010));
        assert!(!debts.is_any());
    }

    /// Whoever owes something right after the one who collects has found nothing does not rely on that one.
    #[test]
    fn whoever_finds_nothing_owed_does_not_collect_any_more() {
        let debts = Debts::default();
        let (names, ttl) = (Names::try_from("job").unwrap(), Ttl::new(Duration::from_secs(60)).unwrap());
        let held = Held { names, owner: Owner::random(None), ttl, order: Order::Any };
        let now = Moment::from_nanos(1);
        debts.owe(1, &held, now);
        assert!(debts.begin_collecting() && !debts.begin_collecting());
        assert!(debts.due(now).1.is_some() && !debts.begin_collecting());
        debts.paid(0, &held.owner, now);
        assert_eq!(debts.due(now).1, None);
        debts.owe(1, &held, now);
        assert!(debts.begin_collecting(), "the last one is on its way out");
    }

    #[test]
    fn debts_are_bounded_and_those_that_end_first_go() {
        const SERVERS: usize = 3;
        let debts = Debts::default();
        let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        let names = Names::try_from("job").unwrap();
        let leases: Vec<Held> = (0..DEBTS_MAX)
            .map(|_| Held { names: names.clone(), owner: Owner::random(None), ttl, order: Order::Any })
            .collect();
        for (nanos, held) in (1..).zip(&leases) {
            debts.owe(SERVERS, held, Moment::from_nanos(nanos));
            let count = debts.owed().debts.len();
            assert!(count <= DEBTS_MAX, "{count} are owed");
        }
        let kept = leases.iter().filter(|held| debts.is_owed(SERVERS - 1, &held.owner)).count();
        assert!(kept * SERVERS > DEBTS_MAX - 2 * DEBTS_LEFT_AT_ONCE, "only {kept} are kept");
        let (left, kept) = leases.split_at(leases.len() - kept);
        for node in 0..SERVERS {
            assert!(
                left.iter().all(|held| !debts.is_owed(node, &held.owner)),
                "one that ends first was kept"
            );
            assert!(kept.iter().all(|held| debts.is_owed(node, &held.owner)), "one that ends last was left");
        }
    }
}
