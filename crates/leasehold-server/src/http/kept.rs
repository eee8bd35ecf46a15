//! Answers about events that are kept ready to be sent, for a bounded number of events.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::EventNo;

/// Events whose answer is kept.
const EVENTS_MAX: usize = 64;

/// One answer for each of the last events that were asked about.
#[derive(Debug)]
pub(crate) struct Kept<T>(Mutex<Vec<(EventNo, Arc<T>)>>);

impl<T> Kept<T> {
    pub(crate) fn get(&self, event: EventNo) -> Option<Arc<T>> {
        self.lock().iter().find(|(known, _)| *known == event).map(|(_, answer)| Arc::clone(answer))
    }

    /// What is kept for an event, or from now on this.
    pub(crate) fn get_or_put(&self, event: EventNo, fresh: impl FnOnce() -> T) -> Arc<T> {
        let mut kept = self.lock();
        if let Some((_, known)) = kept.iter().find(|(known, _)| *known == event) {
            return Arc::clone(known);
        }
        let fresh = Arc::new(fresh());
        add(&mut kept, event, Arc::clone(&fresh));
        fresh
    }

    /// Keeps an answer in place of an earlier one, or of that which was made first.
    pub(crate) fn put(&self, event: EventNo, answer: Arc<T>) {
        let mut kept = self.lock();
        kept.retain(|(known, _)| *known != event);
        add(&mut kept, event, answer);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(EventNo, Arc<T>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add<T>(kept: &mut Vec<(EventNo, Arc<T>)>, event: EventNo, answer: Arc<T>) {
    if kept.len() >= EVENTS_MAX {
        kept.remove(0);
    }
    kept.push((event, answer));
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}
