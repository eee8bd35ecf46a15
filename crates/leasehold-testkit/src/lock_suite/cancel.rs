//! Dropping any future at any await leaves nothing behind.
//!
//! Each test polls a future k times and drops it, for k = 0, 1, 2, ... until it finishes by itself.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use leasehold_lock::backend::{Released, Renewed};
use leasehold_lock::{Locker, Settings};

use super::{LONG, PATIENCE, Store, ask, granted, held, name, names, owner};

/// The name must be free this soon, although its lease lasts for a minute.
const SOON: Duration = Duration::from_secs(1);
/// A future that is not over after so many polls hangs.
const POLLS_MAX: usize = 1_000;

/// Polls `future` at most `polls` times, then drops it. `None` when it was not over by then.
///
/// A future that waits is given a little time, and then dropped where it waits: without a second poll at the
/// same place there would be nothing new to see.
async fn polled<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    let until_dropped = std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    tokio::time::timeout(Duration::from_millis(500), until_dropped).await.ok().flatten()
}

/// Acquiring a free name.
pub async fn acquisition_dropped_at_any_await_leaves_nothing(store: Store) {
    let locker = Locker::with_settings(store.clone(), Settings::default());
    let mut took = Vec::new();
    for polls in 0..POLLS_MAX {
        let name = name("drop");
        let acquired = polled(polls, async { locker.acquire(names(&name)).ttl(LONG).await }).await;
        let finished = acquired.is_some();
        drop(acquired);
        took.push(free(&store, &name).await);
        if finished {
            are_soon(took);
            assert!(polls > 0, "nothing was dropped on the way");
            return;
        }
    }
    panic!("it never finished");
}

/// Waiting for a taken name, which is released while the other waits.
pub async fn waiting_dropped_at_any_await_leaves_nothing(store: Store) {
    let locker = Locker::with_settings(store.clone(), Settings::default());
    let mut took = Vec::new();
    for polls in 0..POLLS_MAX {
        let name = name("drop-wait");
        let other = held(&names(&name), &owner(), LONG);
        granted(ask(&store, &other).await);
        let waiting = polled(polls, async { locker.acquire(names(&name)).ttl(LONG).wait(LONG).await });
        let release = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            store.release(&other).await.unwrap();
        };
        let (acquired, ()) = tokio::join!(waiting, release);
        let finished = acquired.is_some();
        drop(acquired);
        took.push(free(&store, &name).await);
        if finished {
            are_soon(took);
            return;
        }
    }
    panic!("it never finished");
}

/// What is given back for an acquisition that was dropped must not hit the same owner's next one.
pub async fn owner_that_gave_up_and_asks_again_keeps_the_lock(store: Store) {
    let locker = Locker::with_settings(store.clone(), Settings::default());
    let (name, me) = (name("again"), owner());
    for polls in 1..4 {
        let given_up = async { locker.acquire(names(&name)).owner(me.clone()).ttl(LONG).await };
        drop(polled(polls, given_up).await);
        let acquired = locker.acquire(names(&name)).owner(me.clone()).ttl(LONG).await.unwrap();
        let guard = acquired.granted().expect("nobody else wants it");
        // Longer than what is given back for an abandoned acquisition goes on.
        let until = Instant::now() + Duration::from_millis(1_300);
        while Instant::now() < until {
            assert!(store.inspect(&name).await.unwrap().is_some(), "its own past took the lock away");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}

/// Giving back.
pub async fn release_dropped_at_any_await_still_releases(store: Store) {
    let locker = Locker::with_settings(store.clone(), Settings::default());
    let mut took = Vec::new();
    for polls in 0..POLLS_MAX {
        let name = name("drop-release");
        let guard = locker.acquire(names(&name)).ttl(LONG).await.unwrap().granted().expect("free");
        let finished = polled(polls, guard.release()).await.is_some();
        took.push(free(&store, &name).await);
        if finished {
            are_soon(took);
            return;
        }
    }
    panic!("it never finished");
}

/// Giving back what has no guard. Nothing is begun before the first poll.
pub async fn release_without_a_guard_dropped_at_any_await_still_releases(store: Store) {
    let locker = Locker::with_settings(store.clone(), Settings::default());
    let mut took = Vec::new();
    for polls in 1..POLLS_MAX {
        let name = name("drop-release");
        let guard = locker.acquire(names(&name)).ttl(LONG).await.unwrap().granted().expect("free");
        let held = guard.detach();
        let finished = polled(polls, locker.release(&held)).await.is_some();
        took.push(free(&store, &name).await);
        if finished {
            are_soon(took);
            return;
        }
    }
    panic!("it never finished");
}

/// Renewing: the lease is there afterwards, and can be renewed and released.
pub async fn renewal_dropped_at_any_await_harms_nothing(store: Store) {
    let mut took = Vec::new();
    for polls in 0..POLLS_MAX {
        let name = name("drop-renew");
        let mine = held(&names(&name), &owner(), LONG);
        granted(ask(&store, &mine).await);
        let finished = polled(polls, store.renew(std::slice::from_ref(&mine))).await.is_some();
        let again = store.renew(std::slice::from_ref(&mine)).await.remove(0).unwrap();
        assert_eq!(again, Renewed::Extended);
        store.release(&mine).await.unwrap();
        took.push(free(&store, &name).await);
        if finished {
            are_soon(took);
            return;
        }
    }
    panic!("it never finished");
}

/// Waits until the name is free, and still free after everything that was on its way has arrived. Returns how
/// long it was not.
async fn free(store: &Store, name: &leasehold_lock::LockName) -> Duration {
    let began = Instant::now();
    let mut free_since = None;
    while free_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(20)) {
        match store.inspect(name).await.expect("the store answers") {
            None => _ = free_since.get_or_insert_with(Instant::now),
            Some(lease) => {
                free_since = None;
                assert!(began.elapsed() < PATIENCE, "an orphan was left: {lease:?}");
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    free_since.map_or(Duration::ZERO, |since| since - began)
}

/// Within a second. A machine that is busy with other tests may be late now and then, but not half of the time.
fn are_soon(mut took: Vec<Duration>) {
    took.sort_unstable();
    assert!(took[took.len() / 2] < SOON, "names were free only after {took:?}");
}
