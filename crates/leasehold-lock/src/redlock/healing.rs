//! Setting a lock again on servers that do not have it, while most have.
//!
//! A lock may stand on just a majority: the others were down when it was taken, or have forgotten it since. One more that
//! forgets, and it is lost. So when most servers have just extended a lease, it is set again on those that say they do not
//! have it. That is a vote as in an acquisition: it is refused by a server in quarantine, and where somebody else has the
//! lock. It needs no fence: most have agreed to one.
//!
//! Nothing may be set again after its release. Whoever renews notes that before asking, and a release strikes it out before
//! doing anything else. A vote is first noted as under way, then it is looked whether the renewal still stands, and then it
//! is sent. So either the release was first, and nothing is sent; or it finds the vote under way, and calls it off.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{Stream, StreamExt};

use super::{Count, Inner, counter};
use crate::backend::Held;
use crate::clock::Moment;
use crate::error::StoreError;
use crate::owner::Owner;

/// Which leases are being renewed, each by which call. As many as are renewed at a time, and no longer than that takes.
#[derive(Debug, Default)]
pub(super) struct Renewing {
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    last: u64,
    by_owner: HashMap<Owner, u64>,
}

/// One call of a renewal. What it noted is struck out when it is dropped.
#[derive(Debug)]
pub(super) struct Round {
    inner: Arc<Inner>,
    number: u64,
    began: Moment,
    leases: Vec<Held>,
    counts: Vec<Count>,
    /// The servers that do not have a lease, for each of them.
    lacking: Vec<Vec<usize>>,
}

impl Renewing {
    fn begin<'a>(&self, owners: impl Iterator<Item = &'a Owner>) -> u64 {
        let mut calls = self.calls();
        calls.last += 1;
        let number = calls.last;
        calls.by_owner.extend(owners.map(|owner| (owner.clone(), number)));
        number
    }

    /// The owner gives its lease back: from now on nothing is set again for it.
    pub(super) fn released(&self, owner: &Owner) {
        self.calls().by_owner.remove(owner);
    }

    fn stands(&self, owner: &Owner, number: u64) -> bool {
        self.calls().by_owner.get(owner) == Some(&number)
    }

    fn end<'a>(&self, owners: impl Iterator<Item = &'a Owner>, number: u64) {
        let mut calls = self.calls();
        for owner in owners {
            if calls.by_owner.get(owner) == Some(&number) {
                calls.by_owner.remove(owner);
            }
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Round {
    /// Before anything is sent. A lease whose release is still owed to some server is not set again anywhere.
    pub(super) fn begin(inner: &Arc<Inner>, leases: &[Held]) -> Self {
        let is_kept =
            |held: &&Held| !(0..inner.nodes.len()).any(|node| inner.debts.is_owed(node, &held.owner));
        let number = inner.renewing.begin(leases.iter().filter(is_kept).map(|held| &held.owner));
        Self {
            inner: inner.clone(),
            number,
            began: inner.clock.now(),
            leases: leases.to_vec(),
            counts: vec![Count::default(); leases.len()],
            lacking: vec![Vec::new(); leases.len()],
        }
    }

    /// Counts what one server said: one answer for each name of each lease.
    pub(super) fn note(&mut self, node: usize, extended: &[u8]) {
        let mut at = 0;
        for ((held, count), lacking) in self.leases.iter().zip(&mut self.counts).zip(&mut self.lacking) {
            let names = at..at + held.names.as_slice().len();
            at = names.end;
            if extended.get(names).is_some_and(|names| names.iter().all(|name| *name == 1)) {
                count.for_it += 1;
            } else {
                count.against += 1;
                lacking.push(node);
            }
        }
    }

    pub(super) fn counts(&self) -> &[Count] {
        &self.counts
    }

    /// Looks at the answers that nobody waits for any more, and sets again what most servers have. It ends when all have
    /// answered, or their time is up.
    pub(super) fn heal(
        mut self,
        mut answers: impl Stream<Item = (usize, Option<Vec<u8>>)> + Send + Unpin + 'static,
        time_max: Duration,
    ) {
        tokio::spawn(async move {
            self.set_again(time_max).await;
            while let Some((node, answer)) = answers.next().await {
                if let Some(extended) = answer {
                    self.note(node, &extended);
                    self.set_again(time_max).await;
                }
            }
        });
    }

    /// On the servers known to lack a lease so far, each once.
    async fn set_again(&mut self, time_max: Duration) {
        let mut wanted = Vec::new();
        for ((held, count), lacking) in self.leases.iter().zip(&self.counts).zip(&mut self.lacking) {
            if self.inner.decided(*count) == Some(true) {
                wanted.extend(lacking.drain(..).map(|node| (node, held)));
            }
        }
        let this = &*self;
        let votes = wanted.into_iter().map(|(node, held)| async move {
            // Without an answer it is tried again with the next renewal.
            let _ = tokio::time::timeout(time_max, this.set_again_on(node, held)).await;
        });
        join_all(votes).await;
    }

    async fn set_again_on(&self, node: usize, held: &Held) -> Result<(), StoreError> {
        let inner = &self.inner;
        let locks: Vec<String> = held.names.as_slice().iter().map(|name| inner.keys.lock(name)).collect();
        let counters: Vec<String> = locks.iter().map(|lock| counter(lock)).collect();
        let ttl = held.ttl.as_millis().to_string();
        let mut args = vec![held.owner.as_str(), &ttl, inner.nodes[node].members()];
        args.extend(counters.iter().map(String::as_str));
        // Also after this process stood still: then the lease may be over, and somebody else's soon.
        let is_valid = || inner.clock.now().since(self.began) + held.ttl.margin() < held.ttl.length() / 2;
        let is_wanted = || inner.renewing.stands(&held.owner, self.number) && is_valid();
        inner.nodes[node].vote_again(&held.owner, &locks, &args, is_wanted).await
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        self.inner.renewing.end(self.leases.iter().map(|held| &held.owner), self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_strikes_out_what_is_being_renewed_and_a_later_call_is_another() {
        let (renewing, owner) = (Renewing::default(), Owner::random(None));
        let first = renewing.begin([&owner].into_iter());
        assert!(renewing.stands(&owner, first));
        renewing.released(&owner);
        assert!(!renewing.stands(&owner, first));
        let second = renewing.begin([&owner].into_iter());
        assert!(!renewing.stands(&owner, first) && renewing.stands(&owner, second));
        renewing.end([&owner].into_iter(), first);
        assert!(renewing.stands(&owner, second), "the first call has no say any more");
        renewing.end([&owner].into_iter(), second);
        assert!(renewing.calls().by_owner.is_empty());
    }
}
