//! Requests for a vote that a server may not have seen yet.
//!
//! What went over a connection that is lost may reach the server after the release, which goes over the next one: it would
//! be a lock that nobody gives back. So each request has an id, and a release over another connection calls it off first.
//! (Over the same connection the release comes after it.)

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::owner::Owner;

/// Nothing arrives later than this: a system that was told to close a connection gives up sending before.
pub(super) const LATE_MAX: Duration = Duration::from_secs(120);
/// Beyond so many owners, only those are kept whose requests may still arrive, and then no more are noted.
const OWNERS_MAX: usize = 10_000;
/// Requests of one owner that are asked aside, as long as they have no answer.
const ASIDE_MAX: usize = 8;
/// No connection has this number.
const ANY_CONNECTION: u64 = u64::MAX;
/// The others are looked for among all of them no more often than this.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What one server was asked.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    asked: Mutex<Owners>,
}

#[derive(Debug, Default)]
struct Owners {
    asked: HashMap<Owner, Vec<Asked>>,
    swept_at: Option<Instant>,
}

#[derive(Debug)]
struct Asked {
    id: Uuid,
    connection: u64,
    at: Instant,
}

impl UnderWay {
    /// Notes a request, and gives it an id.
    pub(super) fn ask(&self, owner: &Owner, connection: u64) -> Uuid {
        self.ask_at(owner, connection, Instant::now())
    }

    fn ask_at(&self, owner: &Owner, connection: u64, at: Instant) -> Uuid {
        let id = Uuid::new_v4();
        let mut owners = self.owners();
        owners.make_room(at);
        if owners.asked.len() < OWNERS_MAX || owners.asked.contains_key(owner) {
            owners.asked.entry(owner.clone()).or_default().push(Asked { id, connection, at });
        }
        id
    }

    /// Notes a request that may be sent at the very moment of a release, which calls it off in any case. `None` when it could
    /// not be noted: it must not be sent.
    pub(super) fn ask_aside(&self, owner: &Owner) -> Option<Uuid> {
        let now = Instant::now();
        let mut owners = self.owners();
        owners.make_room(now);
        if owners.asked.len() >= OWNERS_MAX && !owners.asked.contains_key(owner) {
            return None;
        }
        let requests = owners.asked.entry(owner.clone()).or_default();
        requests.retain(|asked| now.duration_since(asked.at) < LATE_MAX);
        let has_room = requests.iter().filter(|asked| asked.connection == ANY_CONNECTION).count() < ASIDE_MAX;
        let id = Uuid::new_v4();
        if has_room {
            requests.push(Asked { id, connection: ANY_CONNECTION, at: now });
        }
        has_room.then_some(id)
    }

    /// The server has answered a request.
    pub(super) fn arrived(&self, owner: &Owner, id: Uuid) {
        let owners = &mut self.owners().asked;
        if let Some(requests) = owners.get_mut(owner) {
            requests.retain(|asked| asked.id != id);
            if requests.is_empty() {
                owners.remove(owner);
            }
        }
    }

    /// The requests that may arrive after what goes over this connection.
    pub(super) fn may_come_after(&self, owner: &Owner, connection: u64) -> Vec<Uuid> {
        let owners = self.owners();
        let requests = owners.asked.get(owner).map(Vec::as_slice).unwrap_or_default();
        requests.iter().filter(|asked| asked.connection != connection).map(|asked| asked.id).collect()
    }

    /// The server has answered the owner's release: all its requests came before it, or were called off.
    pub(super) fn released(&self, owner: &Owner) {
        self.owners().asked.remove(owner);
    }

    fn owners(&self) -> MutexGuard<'_, Owners> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owners {
    fn make_room(&mut self, now: Instant) {
        let swept_lately = self.swept_at.is_some_and(|at| now.duration_since(at) < SWEEP_EVERY);
        if self.asked.len() < OWNERS_MAX || swept_lately {
            return;
        }
        self.swept_at = Some(now);
        self.asked.retain(|_, requests| requests.iter().any(|asked| now.duration_since(asked.at) < LATE_MAX));
        if self.asked.len() >= OWNERS_MAX {
            tracing::warn!(
                "too many requests have no answer; more of them are not called off if they come late"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_over_another_connection_without_an_answer_is_called_off() {
        let (under_way, owner) = (UnderWay::default(), Owner::random(None));
        let (answered, unanswered) = (under_way.ask(&owner, 1), under_way.ask(&owner, 1));
        under_way.arrived(&owner, answered);
        assert!(under_way.may_come_after(&owner, 1).is_empty());
        assert_eq!(under_way.may_come_after(&owner, 2), [unanswered]);
        under_way.released(&owner);
        assert!(under_way.may_come_after(&owner, 2).is_empty());
    }

    #[test]
    fn what_was_asked_aside_is_called_off_over_any_connection_and_bounded() {
        let (under_way, owner) = (UnderWay::default(), Owner::random(None));
        let asked: Vec<Uuid> = (0..ASIDE_MAX).map(|_| under_way.ask_aside(&owner).unwrap()).collect();
        assert_eq!(under_way.ask_aside(&owner), None, "one more than fit");
        for connection in [1, 2] {
            assert_eq!(under_way.may_come_after(&owner, connection), asked);
        }
        under_way.arrived(&owner, asked[0]);
        assert!(under_way.ask_aside(&owner).is_some());
    }

    #[test]
    fn owners_are_bounded() {
        let under_way = UnderWay::default();
        let (first, last) = (Owner::random(None), Owner::random(None));
        under_way.ask(&first, 1);
        for _ in 0..OWNERS_MAX {
            under_way.ask(&Owner::random(None), 1);
        }
        under_way.ask(&last, 1);
        assert_eq!(under_way.owners().asked.len(), OWNERS_MAX);
        assert!(under_way.may_come_after(&last, 2).is_empty(), "one more than fit");
        assert_eq!(under_way.may_come_after(&first, 2).len(), 1);
    }

    #[test]
    fn those_that_are_over_are_looked_for_once_a_second_at_most() {
        let (under_way, began) = (UnderWay::default(), Instant::now());
        for _ in 0..OWNERS_MAX {
            under_way.ask_at(&Owner::random(None), 1, began);
        }
        let nearly = LATE_MAX - SWEEP_EVERY / 2;
        for (after, is_noted) in [(nearly, false), (LATE_MAX, false), (nearly + SWEEP_EVERY, true)] {
            let owner = Owner::random(None);
            under_way.ask_at(&owner, 1, began + after);
            assert_eq!(under_way.may_come_after(&owner, 2).len(), usize::from(is_noted), "after {after:?}");
        }
        assert_eq!(under_way.owners().asked.len(), 1);
    }
}
