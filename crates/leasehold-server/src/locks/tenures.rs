//! The leases that were granted through this server, to tell how long locks are held.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_lock::{LockName, Moment, Owner};

/// Most leases that are measured at a time; what comes beyond is served all the same.
const TENURES_MAX: usize = 100_000;

/// One lease.
#[derive(Debug, Clone)]
pub(super) struct Tenure {
    pub(super) owner: Owner,
    pub(super) since: Moment,
    pub(super) ends_at: Moment,
    /// The idempotency key it was acquired under.
    pub(super) key: Option<u128>,
}

/// Leases by their names.
#[derive(Debug, Default)]
pub(super) struct Tenures(Mutex<HashMap<LockName, Tenure>>);

impl Tenures {
    /// Notes a grant. Returns how many leases are known by it to have ended without being given back.
    pub(super) fn begin(&self, name: &LockName, mut tenure: Tenure, now: Moment) -> u64 {
        let mut tenures = self.lock();
        let mut unreleased = 0;
        if tenures.len() >= TENURES_MAX && !tenures.contains_key(name) {
            unreleased = remove_ended(&mut tenures, now);
            if tenures.len() >= TENURES_MAX {
                return unreleased;
            }
        }
        if let Some(before) = tenures.get(name) {
            if before.owner == tenure.owner {
                tenure.since = before.since;
            } else if before.ends_at <= now {
                unreleased += 1;
            }
        }
        tenures.insert(name.clone(), tenure);
        unreleased
    }

    /// Notes a renewal. Returns the idempotency key that the lease was acquired under.
    pub(super) fn extended(&self, name: &LockName, owner: &Owner, ends_at: Moment) -> Option<u128> {
        let mut tenures = self.lock();
        let tenure = tenures.get_mut(name).filter(|tenure| tenure.owner == *owner)?;
        tenure.ends_at = ends_at;
        tenure.key
    }

    /// Forgets a lease of this owner.
    pub(super) fn end(&self, name: &LockName, owner: &Owner) -> Option<Tenure> {
        let mut tenures = self.lock();
        tenures.get(name).filter(|tenure| tenure.owner == *owner)?;
        tenures.remove(name)
    }

    /// How long a lease of this owner lasts yet, as far as this server knows.
    pub(super) fn time_left(&self, name: &LockName, owner: &Owner, now: Moment) -> Option<Duration> {
        let tenures = self.lock();
        let tenure = tenures.get(name).filter(|tenure| tenure.owner == *owner)?;
        Some(tenure.ends_at.since(now))
    }

    /// How long the present lease of a name has lasted, as far as this server knows.
    pub(super) fn age(&self, name: &LockName, now: Moment) -> Option<Duration> {
        let tenures = self.lock();
        let tenure = tenures.get(name).filter(|tenure| now < tenure.ends_at)?;
        Some(now.since(tenure.since))
    }

    /// Forgets what is over. Returns how many ended without being given back.
    pub(super) fn sweep(&self, now: Moment) -> u64 {
        remove_ended(&mut self.lock(), now)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LockName, Tenure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove_ended(tenures: &mut HashMap<LockName, Tenure>, now: Moment) -> u64 {
    let before = tenures.len();
    tenures.retain(|_, tenure| now < tenure.ends_at);
    (before - tenures.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenure(since: u64, ends_at: u64) -> Tenure {
        let moment = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
        Tenure { owner: Owner::random(None), since: moment(since), ends_at: moment(ends_at), key: None }
    }

    #[test]
    fn a_lease_is_forgotten_by_its_owner_or_by_its_end() {
        let (tenures, name) = (Tenures::default(), LockName::parse("a").unwrap());
        let now = Moment::from_nanos(15_000_000_000);
        let (first, second) = (tenure(1, 10), tenure(12, 20));
        assert_eq!(tenures.begin(&name, first.clone(), now), 0);
        assert_eq!(tenures.begin(&name, second.clone(), now), 1, "the first ended and nobody gave it back");
        assert!(tenures.end(&name, &first.owner).is_none());
        assert_eq!(tenures.age(&name, now), Some(Duration::from_secs(3)));
        assert_eq!(tenures.time_left(&name, &second.owner, now), Some(Duration::from_secs(5)));
        assert_eq!(tenures.time_left(&name, &first.owner, now), None);
        let later = now + Duration::from_secs(60);
        assert_eq!(tenures.extended(&name, &second.owner, later), None);
        assert_eq!(tenures.sweep(Moment::from_nanos(30_000_000_000)), 0);
        assert!(tenures.end(&name, &second.owner).is_some());
        assert_eq!(tenures.sweep(later), 0);
    }
}
