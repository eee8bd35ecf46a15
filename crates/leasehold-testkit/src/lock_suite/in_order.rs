//! Waiting in line: first come, first served, and nobody waits for the dead.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_lock::backend::{Attempt, Held, Order, Released, Request};
use leasehold_lock::{Locker, Names, Settings};

use super::{LONG, PATIENCE, Store, ask, granted, held, name, names, owner};

fn in_order(lease: Held) -> Held {
    Held { order: Order::Fifo, ..lease }
}

fn locker(store: &Store) -> Locker {
    Locker::with_settings(store.clone(), Settings::default())
}

/// A store without a queue says so instead of letting the caller believe in one.
async fn refuses_order(store: &Store) -> bool {
    let lease = in_order(held(&names(&name("no-line")), &owner(), LONG));
    let Held { names, owner, ttl, order } = &lease;
    let asked = store.try_acquire(&Request { names, owner, ttl: *ttl, order: *order }).await;
    assert_eq!(asked.is_ok(), store.keeps_order(), "{asked:?}");
    !store.keeps_order()
}

/// Those who came first go first.
pub async fn waiters_get_the_lock_in_the_order_they_came(store: Store) {
    if refuses_order(&store).await {
        return;
    }
    let (name, locker) = (name("line"), locker(&store));
    let acquired = locker.acquire(names(&name)).ttl(LONG).in_order().await.unwrap();
    let first = acquired.granted().expect("free");
    let turns = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..6 {
        let (acquire, turns) = (locker.acquire(names(&name)), turns.clone());
        waiters.push(tokio::spawn(async move {
            let acquired = acquire.ttl(LONG).wait(LONG).in_order().await.unwrap();
            let guard = acquired.granted().expect("patience enough");
            turns.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        in_line(&store, &name, number + 1).await;
    }
    first.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*turns.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

/// Waiters that died in line are passed over, all of them sooner than one that may still be there: not after their
/// leases, and not after a second each. A machine that is busy with other tests may be late once.
pub async fn dead_waiter_costs_the_next_one_little(store: Store) {
    if refuses_order(&store).await {
        return;
    }
    let mut least = Duration::MAX;
    for _ in 0..3 {
        least = least.min(cost_of_the_dead(&store).await);
        if least < Duration::from_secs(1) {
            return;
        }
    }
    panic!("the dead cost {least:?}");
}

/// How long the next in line waits after the release when five before it have died.
async fn cost_of_the_dead(store: &Store) -> Duration {
    let (name, locker) = (name("dead"), locker(store));
    let acquired = locker.acquire(names(&name)).ttl(LONG).in_order().await.unwrap();
    let first = acquired.granted().expect("free");
    // These ask once and are never heard of again; the next one goes on asking.
    let next = owner();
    for asks in [owner(), owner(), owner(), owner(), owner(), next.clone()] {
        let waits = in_order(held(&names(&name), &asks, LONG));
        assert!(matches!(ask(store, &waits).await, Attempt::Busy(_)));
    }
    let acquire = locker.acquire(names(&name)).owner(next).ttl(LONG).wait(LONG).in_order();
    let waiter = tokio::spawn(acquire.into_future());
    // For so long whoever says nothing may still be there.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let began = Instant::now();
    first.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap().granted().expect("its turn");
    let cost = began.elapsed();
    guard.release().await.unwrap();
    cost
}

/// Whoever gives up does not stand in the way.
pub async fn waiter_that_gives_up_leaves_the_line(store: Store) {
    if refuses_order(&store).await {
        return;
    }
    let (name, locker) = (name("leave"), locker(&store));
    let acquired = locker.acquire(names(&name)).ttl(LONG).in_order().await.unwrap();
    let first = acquired.granted().expect("free");
    let gives_up = locker.acquire(names(&name)).wait(Duration::from_millis(50)).in_order().await.unwrap();
    assert!(gives_up.granted().is_none());
    let cancelled = tokio::time::timeout(
        Duration::from_millis(50),
        locker.acquire(names(&name)).wait(LONG).in_order().into_future(),
    );
    assert!(cancelled.await.is_err(), "it got a lock that is held");
    in_line(&store, &name, 0).await;
    first.release().await.unwrap();
    super::is_free_within(&store, &name, PATIENCE).await;
}

/// Showing that one is still there does not cost the place.
pub async fn asking_again_keeps_the_place_in_line(store: Store) {
    if refuses_order(&store).await {
        return;
    }
    let name = name("place");
    let holder = in_order(held(&names(&name), &owner(), LONG));
    granted(ask(&store, &holder).await);
    let waiters: Vec<Held> = (0..3).map(|_| in_order(held(&names(&name), &owner(), LONG))).collect();
    for _ in 0..3 {
        for (place, waiter) in waiters.iter().enumerate() {
            let Attempt::Busy(busy) = ask(&store, waiter).await else { panic!("two owners") };
            assert_eq!(busy.ahead, u32::try_from(place).ok());
        }
    }
    store.release(&holder).await.unwrap();
    assert!(matches!(ask(&store, &waiters[1]).await, Attempt::Busy(_)), "it went before its turn");
    granted(ask(&store, &waiters[0]).await);
}

/// Whoever did not ask in order gives the lock to the line all the same, and nobody gets in between.
pub async fn plain_release_hands_over_to_the_first_in_line(store: Store) {
    if refuses_order(&store).await {
        return;
    }
    let name = name("plain");
    let several = Names::new([name.clone(), super::name("plain-other")]).unwrap();
    for lease in [names(&name), several] {
        let holder = held(&lease, &owner(), LONG);
        granted(ask(&store, &holder).await);
        let waiters: Vec<Held> = (0..2).map(|_| in_order(held(&names(&name), &owner(), LONG))).collect();
        for waiter in &waiters {
            assert!(matches!(ask(&store, waiter).await, Attempt::Busy(_)));
        }
        let Held { names: wanted, owner: first, ttl, order } = &waiters[0];
        let request = Request { names: wanted, owner: first, ttl: *ttl, order: *order };
        let mut turn = store.watch(&request, &name).await.unwrap();
        // Until it listens time may have passed; now it is surely believed to be there.
        assert!(matches!(ask(&store, &waiters[0]).await, Attempt::Busy(_)));
        assert_eq!(store.release(&holder).await.unwrap(), Released::Released);
        let plain = held(&names(&name), &owner(), LONG);
        assert!(matches!(ask(&store, &plain).await, Attempt::Busy(_)), "it went before the line");
        tokio::time::timeout(PATIENCE, turn.rung()).await.expect("the first in line is told");
        turn.settle();
        granted(ask(&store, &waiters[0]).await);
        for waiter in &waiters {
            store.release(waiter).await.unwrap();
        }
        super::is_free_within(&store, &name, PATIENCE).await;
    }
}

/// Waits until so many stand in line.
async fn in_line(store: &Store, name: &leasehold_lock::LockName, expected: u32) {
    let until = Instant::now() + PATIENCE;
    loop {
        let lease = store.inspect(name).await.unwrap().expect("held");
        if lease.waiters == Some(expected) {
            return;
        }
        assert!(Instant::now() < until, "expected {expected} in line: {lease:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
