//! Which servers may vote.
//!
//! A server that forgot what it agreed to would agree to the same fence again. Waiting out the locks, as is
//! often advised, repairs the lock and not the fence. So a server that is empty, or that started again
//! without having every write on its disk, is in quarantine: it does not vote until no acquisition that it
//! may have taken part in can still be going on, and until it has the highest counters of most of the others.
//!
//! When too few others are left to copy from, the set is new, or most of it has lost its memory. Then, with
//! all servers at hand, counters begin at a floor taken from the clock: higher than before, if no clock was
//! set back.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;

use super::node::{Looked, Outsider};
use super::{ACQUIRE_TIME_MAX, Inner};
use crate::clock::Moment;
use crate::error::StoreError;

/// Longer than any acquisition may take, and than its last command may be on its way.
const QUARANTINE: Duration = Duration::from_secs(3);
const _: () = assert!(QUARANTINE.as_millis() > ACQUIRE_TIME_MAX.as_millis());

/// Fences that the clock leaves room for in a millisecond. With it they stay below 2^53 until 2060.
const FENCES_PER_MILLI: u64 = 8_192;
const YEAR_2026_MILLIS: u64 = 1_767_225_600_000;

/// Who the servers are, and what is wrong with the set.
#[derive(Debug, Default)]
pub(super) struct Roll {
    ids: HashMap<usize, String>,
    refusal: Option<String>,
}

impl Roll {
    /// Notes who a server is. Two addresses of one server would have two votes.
    fn note(&mut self, node: usize, id: &str) -> bool {
        self.ids.insert(node, id.to_owned());
        let is_twice = self.ids.iter().any(|(other, known)| *other != node && known == id);
        if is_twice {
            self.refusal = Some("two of the addresses are the same server".to_owned());
        }
        !is_twice
    }
}

impl Inner {
    /// Looks at servers that may not vote as far as is known here, and admits those that may by now.
    ///
    /// Returns as soon as enough of them may vote. A server that stands still is waited for by nobody.
    pub(super) async fn admit_outsiders(self: &Arc<Self>) -> Result<(), StoreError> {
        // With enough of them one look is under way at most; without, everybody waits for it.
        if !self.enough_may_vote() || self.should_look() {
            let mut looking = tokio::spawn(look_at_all(self.clone(), self.clock.now()));
            loop {
                let looked = self.looked.notified();
                if self.enough_may_vote() {
                    break;
                }
                tokio::select! {
                    ended = &mut looking => {
                        ended.map_err(|error| StoreError::Unknown(error.into()))??;
                        break;
                    }
                    () = looked => {}
                }
            }
        }
        match &self.roll().refusal {
            Some(refusal) => Err(StoreError::Refused(refusal.clone().into())),
            None => Ok(()),
        }
    }

    /// Goes on looking at servers that may not vote, for a client that asks for nothing any more: a command that runs
    /// under a lock may be all there is to end a quarantine.
    pub(super) fn look_again(self: &Arc<Self>) {
        if self.should_look() {
            tokio::spawn(look_at_all(self.clone(), self.clock.now()));
        }
    }

    fn should_look(&self) -> bool {
        let now = self.clock.now();
        self.nodes.iter().any(|node| node.must_be_looked_at(now)) && self.admission.try_lock().is_ok()
    }

    fn enough_may_vote(&self) -> bool {
        self.nodes.iter().filter(|node| node.may_vote()).count() >= self.quorum()
    }

    /// Notes what a look found. Only a server that no other address names may vote.
    fn enter(&self, index: usize, looked: &Result<Looked, StoreError>) {
        let mut roll = self.roll();
        match looked {
            Ok(Looked::Admitted { id }) => {
                if roll.note(index, id) {
                    self.nodes[index].let_vote();
                }
            }
            Ok(Looked::Quarantined(outsider)) => {
                roll.note(index, &outsider.id);
            }
            Ok(Looked::OtherMembers(number)) => {
                let here = self.nodes.len();
                let text = format!("a server belongs to a set of {number}, and {here} are configured here");
                roll.refusal = Some(text);
            }
            Err(_) => {}
        }
        drop(roll);
        self.looked.notify_waiters();
    }

    fn roll(&self) -> MutexGuard<'_, Roll> {
        self.roll.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The highest counters of the others, if enough of them may vote: any fence that most agreed to is
    /// among them.
    async fn copy_for(&self, outsider: &super::Node) -> Option<(u64, BTreeMap<String, u64>)> {
        let others = self.nodes.iter().filter(|node| node.address != outsider.address);
        let answers = join_all(others.map(|node| node.counters(&self.clock))).await;
        let known: Vec<_> = answers.into_iter().filter_map(|answer| answer.ok().flatten()).collect();
        let others = self.nodes.len() - 1;
        if others == 0 || known.len() < others / 2 + 1 {
            return None;
        }
        Some(highest(known))
    }

    /// The highest counters of all servers; `None` unless every one of them is at hand.
    async fn all_counters(&self) -> Option<BTreeMap<String, u64>> {
        let answers = join_all(self.nodes.iter().map(|node| node.counters(&self.clock))).await;
        let known: Option<Vec<_>> = answers.into_iter().map(Result::ok).collect();
        Some(highest(known?.into_iter().flatten().collect()).1)
    }
}

/// One look at all servers that may not vote, by one task at a time. A look that began after it was asked for
/// serves everybody who waited.
async fn look_at_all(inner: Arc<Inner>, asked: Moment) -> Result<(), StoreError> {
    let inner = &*inner;
    let mut last = inner.admission.lock().await;
    if last.is_some_and(|began| asked < began) {
        return Ok(());
    }
    *last = Some(inner.clock.now());
    inner.roll().refusal = None;
    let looks = inner.nodes.iter().enumerate().map(|(index, node)| async move {
        if node.may_vote() {
            return None;
        }
        let looked = match tokio::time::timeout(ACQUIRE_TIME_MAX, node.look(&inner.clock)).await {
            Ok(looked) => looked,
            Err(late) => Err(StoreError::Unknown(late.into())),
        };
        inner.enter(index, &looked);
        Some(looked)
    });
    let mut looked: Vec<Option<Result<Looked, StoreError>>> = join_all(looks).await;
    if looked.iter().filter(|looked| is_refused(looked)).count() > inner.nodes.len() - inner.quorum() {
        // The others are no majority, and these will say the same again: one of them says why.
        let refused = looked.iter_mut().find(|looked| is_refused(looked)).and_then(Option::take);
        return refused.map_or(Ok(()), |refused| refused.map(|_| ()));
    }
    let all_empty = looked.iter().all(is_empty);
    let all_out_for_long = looked.iter().all(|looked| match looked {
        Some(Ok(Looked::Quarantined(outsider))) => outsider.known_for >= QUARANTINE,
        None | Some(Ok(Looked::Admitted { .. })) => true,
        Some(Ok(Looked::OtherMembers(_)) | Err(_)) => false,
    });
    if inner.roll().refusal.is_some() {
        return Ok(());
    }
    // The same for all of them, or the later ones would refuse what the earlier ones agreed to.
    let floor_by_clock = floor_by_clock();
    for (node, looked) in inner.nodes.iter().zip(&looked) {
        let Some(Ok(Looked::Quarantined(outsider))) = looked else { continue };
        let copied = if outsider.known_for >= QUARANTINE { inner.copy_for(node).await } else { None };
        let (floor, counters) = match copied {
            Some(copied) => copied,
            None if all_empty => (floor_by_clock, BTreeMap::new()),
            None if all_out_for_long && outsider.known_for >= QUARANTINE => {
                match inner.all_counters().await {
                    Some(counters) => (floor_by_clock, counters),
                    None => continue,
                }
            }
            None => continue,
        };
        if node.admit(outsider, floor, &counters).await? {
            node.let_vote();
        }
    }
    // Not before all of them are in: whoever waits may be a command that is over as soon as it has its lock.
    inner.looked.notify_waiters();
    Ok(())
}

fn is_empty(looked: &Option<Result<Looked, StoreError>>) -> bool {
    matches!(looked, Some(Ok(Looked::Quarantined(Outsider { is_empty: true, .. }))))
}

fn is_refused(looked: &Option<Result<Looked, StoreError>>) -> bool {
    matches!(looked, Some(Err(StoreError::Refused(_))))
}

/// The highest floor and the highest counter of each kind.
fn highest(known: Vec<BTreeMap<String, u64>>) -> (u64, BTreeMap<String, u64>) {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for (field, value) in known.into_iter().flatten() {
        let highest = all.entry(field).or_default();
        *highest = (*highest).max(value);
    }
    let floor = all.remove("floor").unwrap_or_default();
    (floor, all)
}

fn floor_by_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    millis.saturating_sub(YEAR_2026_MILLIS).saturating_mul(FENCES_PER_MILLI).min(1 << 53)
}
