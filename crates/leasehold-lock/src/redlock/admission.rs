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

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;

use super::node::{Looked, Outsider};
use super::{ACQUIRE_TIME_MAX, Inner};
use crate::error::StoreError;

/// Longer than any acquisition may take, and than its last command may be on its way.
const QUARANTINE: Duration = Duration::from_secs(3);
const _: () = assert!(QUARANTINE.as_millis() > ACQUIRE_TIME_MAX.as_millis());

/// Fences that the clock leaves room for in a millisecond. With it they stay below 2^53 until 2060.
const FENCES_PER_MILLI: u64 = 8_192;
const YEAR_2026_MILLIS: u64 = 1_767_225_600_000;

impl Inner {
    /// Looks at servers that said they may not vote, and admits those that may by now.
    pub(super) async fn admit_outsiders(&self) -> Result<(), StoreError> {
        let unknown = self.nodes.iter().any(|node| node.must_be_looked_at(self.clock.now()));
        if !unknown {
            return Ok(());
        }
        let _one_at_a_time = self.admission.lock().await;
        let looks = join_all(self.nodes.iter().map(|node| async {
            match tokio::time::timeout(ACQUIRE_TIME_MAX, node.look(&self.clock)).await {
                Ok(looked) => looked,
                Err(late) => Err(StoreError::Unknown(late.into())),
            }
        }));
        let looked: Vec<Result<Looked, StoreError>> = looks.await;
        self.refuse_strangers(&looked)?;
        let all_empty = looked.iter().all(is_empty);
        let all_out_for_long = looked.iter().all(|looked| match looked {
            Ok(Looked::Quarantined(outsider)) => outsider.known_for >= QUARANTINE,
            Ok(Looked::Admitted) => true,
            _ => false,
        });
        for (node, looked) in self.nodes.iter().zip(&looked) {
            let Ok(Looked::Quarantined(outsider)) = looked else { continue };
            let copied = if outsider.known_for >= QUARANTINE { self.copy_for(node).await } else { None };
            let (floor, counters) = match copied {
                Some(copied) => copied,
                None if all_empty => (floor_by_clock(), BTreeMap::new()),
                None if all_out_for_long && outsider.known_for >= QUARANTINE => {
                    (floor_by_clock(), self.all_counters().await)
                }
                None => continue,
            };
            node.admit(outsider, floor, &counters).await?;
        }
        Ok(())
    }

    /// A server that is named twice, under two addresses, would have two votes; one of another set must not
    /// vote at all.
    fn refuse_strangers(&self, looked: &[Result<Looked, StoreError>]) -> Result<(), StoreError> {
        let mut ids: Vec<String> = self.nodes.iter().filter_map(|node| node.id()).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() < count {
            return Err(StoreError::Refused("two of the addresses are the same server".into()));
        }
        match looked.iter().find_map(|looked| match looked {
            Ok(Looked::OtherMembers(number)) => Some(number),
            _ => None,
        }) {
            Some(number) => {
                let (found, here) = (number, self.nodes.len());
                let text = format!("a server belongs to a set of {found}, and {here} are configured here");
                Err(StoreError::Refused(text.into()))
            }
            None => Ok(()),
        }
    }

    /// The highest counters of the others, if enough of them may vote: any fence that most agreed to is
    /// among them.
    async fn copy_for(&self, outsider: &super::Node) -> Option<(u64, BTreeMap<String, u64>)> {
        let others = self.nodes.iter().filter(|node| node.address != outsider.address);
        let answers = join_all(others.map(|node| node.counters())).await;
        let known: Vec<_> = answers.into_iter().filter_map(|answer| answer.ok().flatten()).collect();
        let others = self.nodes.len() - 1;
        if others == 0 || known.len() < others / 2 + 1 {
            return None;
        }
        Some(highest(known))
    }

    async fn all_counters(&self) -> BTreeMap<String, u64> {
        let answers = join_all(self.nodes.iter().map(|node| node.counters())).await;
        highest(answers.into_iter().filter_map(|answer| answer.ok().flatten()).collect()).1
    }
}

fn is_empty(looked: &Result<Looked, StoreError>) -> bool {
    matches!(looked, Ok(Looked::Quarantined(Outsider { is_empty: true, .. })))
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
