//! Waiting: woken at the release, at the end of the lease, or at the end of patience.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold_lock::backend::{Order, Request};
use leasehold_lock::{Acquired, Locker, Settings};

use super::{LONG, PATIENCE, SHORT, Store, ask, give_back, granted, held, let_go, name, names, owner, ttl};

fn locker(store: &Store) -> Locker {
    Locker::with_settings(store.clone(), Settings::default())
}

/// A release is told to those who listen.
pub async fn watch_rings_at_the_release(store: Store) {
    let name = name("ring");
    let mine = held(&names(&name), &owner(), LONG);
    granted(ask(&store, &mine).await);
    let (names, waiter) = (names(&name), owner());
    let request = Request { names: &names, owner: &waiter, ttl: ttl(LONG), order: Order::Any };
    let mut watch = store.watch(&request, &name).await.unwrap();
    assert!(
        tokio::time::timeout(Duration::from_millis(100), watch.rung()).await.is_err(),
        "rung for nothing"
    );
    give_back(&store, &mine).await;
    tokio::time::timeout(PATIENCE, watch.rung()).await.expect("the release rings");
    watch.settle();
}

/// A waiter has the lock as soon as it is free.
pub async fn waiter_gets_the_lock_when_it_is_released(store: Store) {
    let (name, locker) = (name("wait"), locker(&store));
    let guard = locker.acquire(names(&name)).ttl(LONG).await.unwrap().granted().expect("free");
    let waiter = tokio::spawn({
        let (locker, name) = (locker.clone(), name.clone());
        async move { locker.acquire(names(&name)).ttl(LONG).wait(PATIENCE).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiter.is_finished(), "it got a lock that is held");
    let_go(guard).await;
    let acquired = waiter.await.unwrap().unwrap();
    let guard = acquired.granted().expect("it was released");
    let_go(guard).await;
}

/// A lease that ends by itself tells nobody; a waiter gets it all the same.
pub async fn waiter_gets_the_lock_when_the_lease_ends(store: Store) {
    let (name, locker) = (name("wait-end"), locker(&store));
    granted(ask(&store, &held(&names(&name), &owner(), SHORT)).await);
    let acquired = locker.acquire(names(&name)).ttl(LONG).wait(PATIENCE).await.unwrap();
    let_go(acquired.granted().expect("the lease has ended")).await;
}

/// Waiting in vain is an answer.
pub async fn waiting_in_vain_is_busy_with_the_remaining_time(store: Store) {
    let (name, locker) = (name("vain"), locker(&store));
    granted(ask(&store, &held(&names(&name), &owner(), LONG)).await);
    let (began, wait) = (Instant::now(), Duration::from_millis(200));
    let Acquired::Busy(busy) = locker.acquire(names(&name)).wait(wait).await.unwrap() else {
        panic!("two owners");
    };
    assert!(began.elapsed() >= wait, "it gave up early");
    assert!(busy.remaining.expect("an end") > LONG - PATIENCE);
    assert_eq!(locker.meters().timed_out.get(), 1);
}

/// However many want it, one has it at a time.
pub async fn one_at_a_time_under_contention(store: Store) {
    let (name, locker) = (name("contend"), locker(&store));
    let (inside, total) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (locker, name, inside, total) = (locker.clone(), name.clone(), inside.clone(), total.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                let acquired = locker.acquire(names(&name)).ttl(LONG).wait(LONG).await.unwrap();
                let guard = acquired.granted().expect("patience enough");
                assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                tokio::task::yield_now().await;
                inside.store(false, Ordering::SeqCst);
                total.fetch_add(1, Ordering::SeqCst);
                let_go(guard).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(total.load(Ordering::SeqCst), 80);
}

/// No waiter is forgotten when many wait.
pub async fn many_waiters_all_get_their_turn(store: Store) {
    let (name, locker) = (name("turns"), locker(&store));
    let guard = locker.acquire(names(&name)).ttl(LONG).await.unwrap().granted().expect("free");
    let waiters: Vec<_> = (0..30)
        .map(|_| {
            let (locker, name) = (locker.clone(), name.clone());
            tokio::spawn(async move {
                let acquired = locker.acquire(names(&name)).ttl(LONG).wait(LONG).await.unwrap();
                let_go(acquired.granted().expect("patience enough")).await;
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let_go(guard).await;
    let all = async {
        for waiter in waiters {
            waiter.await.unwrap();
        }
    };
    tokio::time::timeout(LONG / 2, all).await.expect("all of them, long before a lease would end");
}
