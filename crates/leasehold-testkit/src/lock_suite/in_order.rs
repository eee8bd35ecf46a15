//! Waiting in line: first come, first served, and nobody waits for the dead.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_lock::backend::{Attempt, Held, Order, Released, Request};
use leasehold_lock::{Locker, Names, Settings};

use super::{
    LONG, PATIENCE, Store, ask, give_back, granted, held, inspect, let_go, name, names, owner, release_is,
};

/// Whoever is not heard of for a second counts as gone, and a turn that is not taken in that time is over. On a machine
/// that stands still for so long somebody may miss a turn, but not every time.
const ROUNDS: u32 = 3;

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
    let mut turns = Vec::new();
    for _ in 0..ROUNDS {
        turns = turns_in_line(&store).await;
        if turns == [0, 1, 2, 3, 4, 5] {
            return;
        }
    }
    panic!("the turns were {turns:?}");
}

/// Has six wait in order, and says in which order they got the lock.
async fn turns_in_line(store: &Store) -> Vec<u32> {
    let (name, locker) = (name("line"), locker(store));
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
            let_go(guard).await;
        }));
        in_line(store, &name, number + 1).await;
    }
    let_go(first).await;
    for waiter in waiters {
        waiter.await.unwrap();
    }
    let turns = turns.lock().unwrap();
    turns.clone()
}

/// Waiters that died in line are passed over, all of them sooner than one that may still be there: not after their
/// leases, and not after a second each. A machine that is busy with other tests may be late once.
pub async fn dead_waiter_costs_the_next_one_little(store: Store) {
    if refuses_order(&store).await {
        return;
    }
    let mut least = Duration::MAX;
    for _ in 0..ROUNDS {
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
    let_go(first).await;
    let guard = waiter.await.unwrap().unwrap().granted().expect("its turn");
    let cost = began.elapsed();
    let_go(guard).await;
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
    let_go(first).await;
    super::is_free_within(&store, &name, PATIENCE).await;
}

/// Showing that one is still there does not cost the place.
pub async fn asking_again_keeps_the_place_in_line(store: Store) {
    if refuses_order(&store).await {
        return;
    }
    let mut went_wrong = String::new();
    for _ in 0..ROUNDS {
        match places_are_kept(&store).await {
            Ok(()) => return,
            Err(what) => went_wrong = what,
        }
    }
    panic!("{went_wrong}");
}

async fn places_are_kept(store: &Store) -> Result<(), String> {
    let name = name("place");
    let holder = in_order(held(&names(&name), &owner(), LONG));
    granted(ask(store, &holder).await);
    let waiters: Vec<Held> = (0..3).map(|_| in_order(held(&names(&name), &owner(), LONG))).collect();
    for _ in 0..3 {
        for (place, waiter) in waiters.iter().enumerate() {
            let Attempt::Busy(busy) = ask(store, waiter).await else { panic!("two owners") };
            if busy.ahead != u32::try_from(place).ok() {
                return Err(format!("{:?} are ahead of number {place}", busy.ahead));
            }
        }
    }
    give_back(store, &holder).await;
    if let Attempt::Granted(_) = ask(store, &waiters[1]).await {
        return Err("it went before its turn".to_owned());
    }
    match ask(store, &waiters[0]).await {
        Attempt::Granted(_) => Ok(()),
        Attempt::Busy(busy) => Err(format!("it did not get its turn: {busy:?}")),
    }
}

/// Whoever did not ask in order gives the lock to the line all the same, and nobody gets in between.
pub async fn plain_release_hands_over_to_the_first_in_line(store: Store) {
    if refuses_order(&store).await {
        return;
    }
    for has_others in [false, true] {
        let mut is_handed_over = false;
        for _ in 0..ROUNDS {
            is_handed_over = hands_over(&store, has_others).await;
            if is_handed_over {
                break;
            }
        }
        assert!(is_handed_over, "somebody went before the line");
    }
}

/// Whether the first in line gets a name, alone or of several, that is given back without order.
async fn hands_over(store: &Store, has_others: bool) -> bool {
    let name = name("plain");
    let several = Names::new([name.clone(), super::name("plain-other")]).unwrap();
    let holder = held(&if has_others { several } else { names(&name) }, &owner(), LONG);
    granted(ask(store, &holder).await);
    let waiters: Vec<Held> = (0..2).map(|_| in_order(held(&names(&name), &owner(), LONG))).collect();
    for waiter in &waiters {
        assert!(matches!(ask(store, waiter).await, Attempt::Busy(_)));
    }
    let Held { names: wanted, owner: first, ttl, order } = &waiters[0];
    let request = Request { names: wanted, owner: first, ttl: *ttl, order: *order };
    let mut turn = store.watch(&request, &name).await.unwrap();
    // Until it listens time may have passed; now it is surely believed to be there.
    assert!(matches!(ask(store, &waiters[0]).await, Attempt::Busy(_)));
    release_is(store, &holder, Released::Released).await;
    let plain = held(&names(&name), &owner(), LONG);
    let is_first_in_line = matches!(ask(store, &plain).await, Attempt::Busy(_));
    tokio::time::timeout(PATIENCE, turn.rung()).await.expect("the first in line is told");
    turn.settle();
    let is_handed_over = is_first_in_line && matches!(ask(store, &waiters[0]).await, Attempt::Granted(_));
    for owner in [&plain, &waiters[0], &waiters[1]] {
        give_back(store, owner).await;
    }
    super::is_free_within(store, &name, PATIENCE).await;
    is_handed_over
}

/// Waits until so many stand in line.
async fn in_line(store: &Store, name: &leasehold_lock::LockName, expected: u32) {
    let until = Instant::now() + PATIENCE;
    loop {
        let lease = inspect(store, name).await.expect("held");
        if lease.waiters == Some(expected) {
            return;
        }
        assert!(Instant::now() < until, "expected {expected} in line: {lease:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
