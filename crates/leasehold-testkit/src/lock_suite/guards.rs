//! Guards: renewed while they live, given back when dropped, told when lost.

use std::time::{Duration, Instant};

use leasehold_lock::backend::{Attempt, Released};
use leasehold_lock::{Clock, LeaseState, LockError, Locker, LostReason, Settings};

use super::{
    LONG, PATIENCE, Store, ask, give_back, held, inspect, is_free_within, let_go, name, names, owner,
};
use crate::Lateness;

fn locker(store: &Store) -> Locker {
    Locker::with_settings(store.clone(), Settings::default())
}

/// A short lease is held for long by renewing it.
pub async fn guard_is_renewed_beyond_its_length(store: Store) {
    let (name, locker) = (name("renewed"), locker(&store));
    let length = Duration::from_millis(3_500);
    let guard = locker.acquire(names(&name)).ttl(length).await.unwrap().granted().expect("free");
    let (first_deadline, clock) = (guard.deadline(), Clock::system());
    assert!(first_deadline < clock.now() + length, "it could go on beyond the lease");
    let until = Instant::now() + length * 2;
    while Instant::now() < until {
        assert_ne!(guard.state(), LeaseState::Lost);
        // With a long one, because a set of servers waits for answers as long as a lease is worth it.
        let attempt = ask(&store, &held(&names(&name), &owner(), LONG)).await;
        assert!(matches!(attempt, Attempt::Busy(_)), "it was not renewed in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(guard.deadline() > first_deadline + length, "it was renewed, and is to stop all the same");
    let_go(guard).await;
}

/// Dropping is enough.
pub async fn dropped_guard_gives_the_lock_back(store: Store) {
    let (name, locker) = (name("dropped"), locker(&store));
    drop(locker.acquire(names(&name)).ttl(LONG).await.unwrap());
    is_free_within(&store, &name, PATIENCE).await;
}

/// A release of what is lost says so.
pub async fn release_tells_whether_it_still_was_held(store: Store) {
    let (name, locker) = (name("told"), locker(&store));
    let guard = locker.acquire(names(&name)).ttl(LONG).await.unwrap().granted().expect("free");
    give_back(&store, &held(&names(&name), guard.owner(), LONG)).await;
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}

/// What the store gave away is lost at the next renewal, long before the end of the lease.
pub async fn holder_learns_that_its_lease_is_gone(store: Store) {
    let (name, locker) = (name("gone"), locker(&store));
    let length = Duration::from_secs(6);
    let guard = locker.acquire(names(&name)).ttl(length).await.unwrap().granted().expect("free");
    give_back(&store, &held(&names(&name), guard.owner(), LONG)).await;
    let reason = tokio::time::timeout(length, guard.lost()).await.expect("told before the end");
    assert_eq!(reason, LostReason::Gone);
    assert_eq!(guard.state(), LeaseState::Lost);
    assert!(matches!(guard.check(), Err(LockError::Lost { reason: LostReason::Gone, .. })));
}

/// A guard that is leaked, or work that hangs, does not keep the lock for ever.
pub async fn renewal_stops_at_the_cap_and_the_holder_is_told_before_the_end(store: Store) {
    let (name, locker) = (name("cap"), locker(&store));
    let length = Duration::from_millis(3_500);
    let acquired = locker.acquire(names(&name)).ttl(length).hold_max(length * 2).await.unwrap();
    let guard = acquired.granted().expect("free");
    let began = Instant::now();
    assert_eq!(guard.lost().await, LostReason::HeldTooLong);
    assert!((length..=length * 3).contains(&began.elapsed()), "held for {:?}", began.elapsed());
    std::mem::forget(guard);
    is_free_within(&store, &name, PATIENCE).await;
}

/// Work is over before the next owner begins. A machine that stands still for longer than the margin at the end of a lease
/// is a fence's business: such a round tells nothing, and there is another one with a longer lease.
pub async fn run_cancels_the_work_before_anybody_else_can_have_the_lock(store: Store) {
    const ROUNDS: u32 = 5;
    let (name, locker) = (name("run"), locker(&store));
    for round in 0..ROUNDS {
        let length = Duration::from_secs(1 << round);
        let lateness = Lateness::watch();
        let began = Instant::now();
        let acquired = locker.acquire(names(&name)).ttl(length).no_renewal().wait(PATIENCE).await.unwrap();
        let guard = acquired.granted().expect("free");
        let work = std::future::pending::<()>();
        assert!(matches!(guard.run(work).await, Err(LockError::Lost { .. })));
        // The work has been dropped by now. The lock is still nobody else's.
        let (stopped_after, late_by) = (began.elapsed(), lateness.worst());
        let next = held(&names(&name), &owner(), LONG);
        let attempt = ask(&store, &next).await;
        let asking_took = began.elapsed() - stopped_after;
        assert_eq!(guard.run(async { 1 }).await.ok(), None, "work begins after the loss");
        if matches!(attempt, Attempt::Busy(_)) {
            return;
        }
        assert!(began.elapsed() >= length, "another owner was let in before the end of the lease");
        // The machine stood still before the work was stopped, or before the store was asked: for a part of the margin.
        let late_by = late_by.max(asking_took);
        let is_excused = late_by > length / 64;
        assert!(is_excused, "stopped after {stopped_after:?} of {length:?}, without a reason: {late_by:?}");
        give_back(&store, &next).await;
    }
    panic!("the work was stopped too late {ROUNDS} times in a row");
}

/// A lease can be handed to somebody who knows its owner.
pub async fn detached_lease_stays_until_its_owner_releases_it(store: Store) {
    let (name, locker) = (name("detached"), locker(&store));
    let guard = locker.acquire(names(&name)).ttl(LONG).await.unwrap().granted().expect("free");
    let held = guard.detach();
    locker.settle(PATIENCE).await;
    assert!(inspect(&store, &name).await.is_some(), "it was given back");
    assert_eq!(locker.release(&held).await.unwrap(), Released::Released);
}
