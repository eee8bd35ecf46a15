//! Locks inside one process: for tests, and for work that only competes with itself.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::backend::{Attempt, Backend, Held, ListQuery, Order, Page, Released, Renewed, Request};
use crate::bells::{Bells, Watch};
use crate::clock::{Clock, Moment};
use crate::error::StoreError;
use crate::lease::{Busy, Fence, Grant, Guarantee, Guarantees, LeaseView};
use crate::name::LockName;
use crate::owner::Owner;

/// Most that wait in line for one name.
const QUEUE_LENGTH_MAX: usize = 10_000;
/// A waiter in line that does not ask for so long has gone away.
const ALIVE: Duration = Duration::from_secs(1);

/// A store in this process's memory.
#[derive(Debug, Default)]
pub struct Memory {
    clock: Clock,
    table: Mutex<Table>,
    bells: Bells,
}

#[derive(Debug, Default)]
struct Table {
    leases: BTreeMap<LockName, Lease>,
    /// Those who wait in line, with the time they were last heard of.
    queues: BTreeMap<LockName, VecDeque<(Owner, Moment)>>,
    last_fence: u64,
    /// How many leases there may be before those that ended are cleared away.
    leases_before_sweep: usize,
}

#[derive(Debug, Clone)]
struct Lease {
    owner: Owner,
    fence: Fence,
    since: Moment,
    expires_at: Moment,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store with a clock of the caller's.
    pub fn with_clock(clock: Clock) -> Self {
        Self { clock, ..Self::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn valid(&self, name: &LockName, now: Moment) -> Option<&Lease> {
        self.leases.get(name).filter(|lease| now < lease.expires_at)
    }

    /// Whoever keeps the request from this name, and for how long.
    fn taken(&mut self, name: &LockName, request: &Request<'_>, now: Moment) -> Option<Busy> {
        let mut busy = Busy { name: name.clone(), remaining: None, ahead: None };
        match self.valid(name, now) {
            Some(lease) if lease.owner == *request.owner => return None,
            Some(lease) => busy.remaining = Some(lease.expires_at.since(now)),
            None => {}
        }
        let queue = self.queues.entry(name.clone()).or_default();
        queue.retain(|(owner, heard_of)| owner == request.owner || now.since(*heard_of) < ALIVE);
        let place = queue.iter().position(|(owner, _)| owner == request.owner);
        let ahead = place.unwrap_or(queue.len());
        let free = busy.remaining.is_none() && ahead == 0;
        if free || request.order == Order::Any {
            if queue.is_empty() {
                self.queues.remove(name);
            }
            // Whoever does not stand in line still lets those go first who do.
            return (!free).then_some(busy);
        }
        match place {
            Some(place) => queue[place].1 = now,
            None if queue.len() < QUEUE_LENGTH_MAX => queue.push_back((request.owner.clone(), now)),
            // There is no room in the line.
            None => return Some(busy),
        }
        busy.ahead = u32::try_from(ahead).ok();
        Some(busy)
    }

    /// Names that nobody asks for again must not stay for ever.
    fn sweep(&mut self, now: Moment) {
        if self.leases.len() >= self.leases_before_sweep {
            self.leases.retain(|_, lease| now < lease.expires_at);
            self.leases_before_sweep = 2 * self.leases.len() + 1_024;
        }
    }

    fn leave_queue(&mut self, name: &LockName, owner: &Owner) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.retain(|(waiting, _)| waiting != owner);
            if queue.is_empty() {
                self.queues.remove(name);
            }
        }
    }

    fn view(&self, name: &LockName, now: Moment) -> Option<LeaseView> {
        let lease = self.valid(name, now)?;
        Some(LeaseView {
            name: name.clone(),
            label: lease.owner.label().map(str::to_owned),
            age: Some(now.since(lease.since)),
            remaining: Some(lease.expires_at.since(now)),
            fence: Some(lease.fence),
            waiters: u32::try_from(self.queues.get(name).map_or(0, VecDeque::len)).ok(),
        })
    }
}

#[async_trait]
impl Backend for Memory {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn hears_late(&self) -> bool {
        false
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            level: Guarantee::Fenced,
            because: "One process, one table, one clock that nobody sets. Fences grow as long as the process \
                      lives, and begin again with the next.",
        }
    }

    async fn try_acquire(&self, request: &Request<'_>) -> Result<Attempt, StoreError> {
        let now = self.clock.now();
        let mut table = self.table();
        table.sweep(now);
        for name in request.names.as_slice() {
            if let Some(busy) = table.taken(name, request, now) {
                return Ok(Attempt::Busy(busy));
            }
        }
        let expires_at = now + request.ttl.length();
        let mut fences = Vec::with_capacity(request.names.as_slice().len());
        for name in request.names.as_slice() {
            table.leave_queue(name, request.owner);
            let mine = table.valid(name, now).cloned();
            let lease = mine.unwrap_or_else(|| {
                table.last_fence += 1;
                let fence = Fence(table.last_fence);
                Lease { owner: request.owner.clone(), fence, since: now, expires_at }
            });
            fences.push(lease.fence);
            table.leases.insert(name.clone(), Lease { expires_at, ..lease });
        }
        Ok(Attempt::Granted(Grant { fences: Some(fences), remaining: request.ttl.length() }))
    }

    async fn renew(&self, leases: &[Held]) -> Vec<Result<Renewed, StoreError>> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut renew = |held: &Held| {
            let names = held.names.as_slice();
            let is_mine = |name| table.valid(name, now).is_some_and(|lease| lease.owner == held.owner);
            if !names.iter().all(is_mine) {
                return Ok(Renewed::Gone);
            }
            for name in names {
                if let Some(lease) = table.leases.get_mut(name) {
                    lease.expires_at = now + held.ttl.length();
                }
            }
            Ok(Renewed::Extended)
        };
        leases.iter().map(&mut renew).collect()
    }

    async fn release(&self, held: &Held) -> Result<Released, StoreError> {
        let now = self.clock.now();
        let mut table = self.table();
        let mut released = Released::Released;
        for name in held.names.as_slice() {
            table.leave_queue(name, &held.owner);
            match table.leases.get(name) {
                Some(lease) if lease.owner == held.owner => {
                    if now >= lease.expires_at {
                        released = Released::NotHeld;
                    }
                    table.leases.remove(name);
                }
                _ => released = Released::NotHeld,
            }
            if let Some((next, _)) = table.queues.get(name).and_then(VecDeque::front) {
                self.bells.ring(next.as_str());
            }
            self.bells.ring(name.as_str());
        }
        Ok(released)
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LeaseView>, StoreError> {
        Ok(self.table().view(name, self.clock.now()))
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let now = self.clock.now();
        let table = self.table();
        let from = match query.cursor.as_deref().map(LockName::parse) {
            Some(Ok(last)) => Bound::Excluded(last),
            Some(Err(error)) => return Err(StoreError::Refused(error.into())),
            None => Bound::Unbounded,
        };
        let limit = query.limit.max(1);
        let looked_at = table.leases.range((from, Bound::Unbounded)).take(limit);
        let names: Vec<LockName> = looked_at.map(|(name, _)| name.clone()).collect();
        let begins = |name: &&LockName| name.as_str().starts_with(&query.prefix);
        Ok(Page {
            leases: names.iter().filter(begins).filter_map(|name| table.view(name, now)).collect(),
            cursor: names.last().filter(|_| names.len() == limit).map(|name| name.as_str().to_owned()),
        })
    }

    async fn watch(&self, request: &Request<'_>, name: &LockName) -> Result<Watch, StoreError> {
        Ok(self.bells.watch(match request.order {
            Order::Any => name.as_str(),
            Order::Fifo => request.owner.as_str(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Ttl;
    use crate::name::Names;

    #[tokio::test]
    async fn names_whose_leases_ended_are_forgotten() {
        let clock = Clock::manual();
        let store = Memory::with_clock(clock.clone());
        let ttl = Ttl::new(Duration::from_millis(10)).unwrap();
        for number in 0..5_000 {
            let names = Names::try_from(format!("job-{number}")).unwrap();
            let request = Request { names: &names, owner: &Owner::random(None), ttl, order: Order::Any };
            assert!(matches!(store.try_acquire(&request).await, Ok(Attempt::Granted(_))));
            clock.advance(Duration::from_millis(10));
        }
        let known = store.table().leases.len();
        assert!(known <= 1_100, "{known} leases are kept, and one at most is held");
    }

    #[tokio::test]
    async fn whoever_finds_no_room_in_line_is_told_of_no_place() {
        let store = Memory::with_clock(Clock::manual());
        let names = Names::try_from("job").unwrap();
        let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        let (holder, last, late) = (Owner::random(None), Owner::random(None), Owner::random(None));
        let request = Request { names: &names, owner: &holder, ttl, order: Order::Fifo };
        assert!(matches!(store.try_acquire(&request).await, Ok(Attempt::Granted(_))));
        let line = (1..QUEUE_LENGTH_MAX).map(|_| (Owner::random(None), store.clock.now())).collect();
        store.table().queues.insert(names.first().clone(), line);
        for (owner, ahead) in [(&last, Some(9_999)), (&late, None), (&last, Some(9_999))] {
            let answer = store.try_acquire(&Request { owner, ..request }).await.unwrap();
            let Attempt::Busy(busy) = answer else { panic!("it is held") };
            assert_eq!(busy.ahead, ahead);
        }
    }
}
