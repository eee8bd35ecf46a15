//! Waking those who wait for a name, one at a time.
//!
//! A ring wakes one waiter of this process, not all of them: the others would only find the name taken. A
//! waiter that was woken and cannot use the name (it gave up, or wants another name as well) passes the ring
//! on, so that a free name is not left lying.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The waiters of one store in this process, by what they wait for: a name, or their own turn in a queue.
///
/// Cloning shares them.
#[derive(Debug, Clone, Default)]
pub struct Bells(Arc<Mutex<HashMap<Arc<str>, Bell>>>);

#[derive(Debug, Default)]
struct Bell {
    rung: Arc<Notify>,
    watchers: usize,
    /// Where the store tells of it, on a store with several channels.
    channel: Option<Arc<str>>,
}

/// One waiter's ear.
#[derive(Debug)]
pub struct Watch {
    what: Arc<str>,
    rung: Arc<Notify>,
    bells: Bells,
    /// Woken, and not yet said what came of it.
    owes_a_ring: bool,
}

impl Bells {
    /// Starts to listen. Rings from now on are not missed.
    pub fn watch(&self, what: &str) -> Watch {
        self.watch_on(None, what)
    }

    /// The same for what is told on one of several channels.
    pub fn watch_on(&self, channel: Option<Arc<str>>, what: &str) -> Watch {
        let what: Arc<str> = what.into();
        let mut bells = self.lock();
        let bell = bells.entry(what.clone()).or_default();
        bell.watchers += 1;
        bell.channel = channel;
        let rung = bell.rung.clone();
        drop(bells);
        Watch { what, rung, bells: self.clone(), owes_a_ring: false }
    }

    /// Wakes one that waits for it.
    pub fn ring(&self, what: &str) {
        if let Some(bell) = self.lock().get(what) {
            bell.rung.notify_one();
        }
    }

    /// Wakes one of each kind: something may have been missed.
    pub fn ring_all(&self) {
        for bell in self.lock().values() {
            bell.rung.notify_one();
        }
    }

    /// How many wait for it in this process.
    pub fn watchers(&self, what: &str) -> usize {
        self.lock().get(what).map_or(0, |bell| bell.watchers)
    }

    /// True when nobody listens.
    pub fn is_quiet(&self) -> bool {
        self.lock().is_empty()
    }

    /// The channels that anybody in this process listens to.
    pub fn channels(&self) -> HashSet<Arc<str>> {
        self.lock().values().filter_map(|bell| bell.channel.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Bell>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Returns when the name may have become free.
    pub async fn rung(&mut self) {
        self.rung.notified().await;
        self.owes_a_ring = true;
    }

    /// The ring was used: the name is taken, by this waiter or by somebody else who will ring again.
    pub fn settle(&mut self) {
        self.owes_a_ring = false;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.owes_a_ring {
            self.rung.notify_one();
        }
        let mut bells = self.bells.lock();
        if let Some(bell) = bells.get_mut(&self.what) {
            bell.watchers -= 1;
            if bell.watchers == 0 {
                bells.remove(&self.what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn is_rung(watch: &mut Watch) -> bool {
        tokio::time::timeout(Duration::from_millis(50), watch.rung()).await.is_ok()
    }

    #[tokio::test]
    async fn one_ring_wakes_one_waiter_and_is_not_missed_before_it_listens() {
        let bells = Bells::default();
        let (mut one, mut other) = (bells.watch("a"), bells.watch("a"));
        bells.ring("a");
        assert!(is_rung(&mut one).await);
        assert!(!is_rung(&mut other).await);
    }

    #[tokio::test]
    async fn waiter_that_gives_up_passes_the_ring_on() {
        let bells = Bells::default();
        let (mut one, mut other) = (bells.watch("a"), bells.watch("a"));
        bells.ring("a");
        assert!(is_rung(&mut one).await);
        drop(one);
        assert!(is_rung(&mut other).await);
        other.settle();
        drop(other);
        assert_eq!(bells.watchers("a"), 0);
    }
}
