//! Dropping any future at any await leaves nothing behind.
//!
//! Each test polls a future k times and drops it, for k = 0, 1, 2, ... until it finishes by itself.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use leasehold_lock::backend::{Attempt, Renewed};
use leasehold_lock::{LockName, Locker, Names, Settings};

use super::{
    LONG, PATIENCE, Store, ask, give_back, granted, held, inspect, let_go, name, names, owner, renew,
};
use crate::Lateness;

/// The name must be free this soon, although its lease lasts for a minute.
const SOON: Duration = Duration::from_secs(1);
/// A machine that is late by as much is the reason for anything.
const STALL: Duration = Duration::from_millis(100);
/// So often a name may not be free so soon for another reason.
const LATE_MAX: u32 = 2;
/// So often it is tried on a machine that stands still again and again.
const ATTEMPTS_MAX: usize = 6;
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

/// Drops what `attempt` does after each number of polls, until it finishes by itself, and wants the names free soon
/// every time. Returns the number of polls that it took.
///
/// `attempt` tells whether it finished, and how long the names were taken afterwards. A store may be late once, for the
/// sake of its disk; the same await that is late again is not excused by that, only by a machine that stood still.
async fn at_every_await<F>(first: usize, attempt: impl Fn(usize) -> F) -> usize
where
    F: Future<Output = (bool, Duration)>,
{
    for polls in first..POLLS_MAX {
        if soon_free(polls, &attempt).await {
            return polls;
        }
    }
    panic!("it never finished");
}

/// Tries until the names are free soon, and says whether it finished.
async fn soon_free<F>(polls: usize, attempt: &impl Fn(usize) -> F) -> bool
where
    F: Future<Output = (bool, Duration)>,
{
    let (mut late, mut soonest) = (0, Duration::MAX);
    for _ in 0..ATTEMPTS_MAX {
        let lateness = Lateness::watch();
        let (finished, taken_for) = attempt(polls).await;
        if taken_for < SOON {
            return finished;
        }
        soonest = soonest.min(taken_for);
        late += u32::from(lateness.worst() < STALL);
        println!("free after {taken_for:?}, while the machine was late by {:?}", lateness.worst());
        if late == LATE_MAX {
            break;
        }
    }
    panic!("dropped after {polls} polls, the name was free only after {soonest:?}");
}

/// Acquiring a free name, and several, which a cluster has on several servers.
pub async fn acquisition_dropped_at_any_await_leaves_nothing(store: Store) {
    let locker = &Locker::with_settings(store.clone(), Settings::default());
    for count in [1, 3] {
        let polls = at_every_await(0, |polls| {
            let (store, locker) = (&store, locker);
            async move {
                let wanted = Names::new((0..count).map(|_| name("drop"))).unwrap();
                let acquired = polled(polls, async { locker.acquire(wanted.clone()).ttl(LONG).await }).await;
                let finished = acquired.is_some();
                drop(acquired);
                (finished, all_free(store, &wanted).await)
            }
        });
        assert!(polls.await > 0, "nothing was dropped on the way");
    }
}

/// Waiting for a taken name, which is released while the other waits; in line as well.
pub async fn waiting_dropped_at_any_await_leaves_nothing(store: Store) {
    let locker = &Locker::with_settings(store.clone(), Settings::default());
    for in_order in [false, true] {
        if in_order && !store.keeps_order() {
            continue;
        }
        at_every_await(0, |polls| {
            let store = &store;
            async move {
                let wanted = names(&name("drop-wait"));
                let other = held(&wanted, &owner(), LONG);
                granted(ask(store, &other).await);
                let acquire = locker.acquire(wanted.clone()).ttl(LONG).wait(LONG);
                let acquire = if in_order { acquire.in_order() } else { acquire };
                let waiting = polled(polls, acquire.into_future());
                let release = async {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    give_back(store, &other).await;
                };
                let (acquired, ()) = tokio::join!(waiting, release);
                let finished = acquired.is_some();
                drop(acquired);
                let mut taken_for = all_free(store, &wanted).await;
                if in_order {
                    // A place in line, and a turn that nobody takes, are over by themselves after a second: half of
                    // that is too long for them.
                    taken_for = 2 * (taken_for + nobody_in_line(store, &wanted).await);
                }
                (finished, taken_for)
            }
        })
        .await;
    }
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
            assert!(inspect(&store, &name).await.is_some(), "its own past took the lock away");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let_go(guard).await;
    }
}

/// Giving back.
pub async fn release_dropped_at_any_await_still_releases(store: Store) {
    let locker = &Locker::with_settings(store.clone(), Settings::default());
    for count in [1, 3] {
        at_every_await(0, |polls| {
            let store = &store;
            async move {
                let wanted = Names::new((0..count).map(|_| name("drop-release"))).unwrap();
                let acquired = locker.acquire(wanted.clone()).ttl(LONG).await.unwrap();
                let finished = polled(polls, acquired.granted().expect("free").release()).await.is_some();
                (finished, all_free(store, &wanted).await)
            }
        })
        .await;
    }
}

/// Giving back what has no guard. Nothing is begun before the first poll.
pub async fn release_without_a_guard_dropped_at_any_await_still_releases(store: Store) {
    let locker = &Locker::with_settings(store.clone(), Settings::default());
    at_every_await(1, |polls| {
        let store = &store;
        async move {
            let wanted = names(&name("drop-release"));
            let acquired = locker.acquire(wanted.clone()).ttl(LONG).await.unwrap();
            let held = acquired.granted().expect("free").detach();
            let finished = polled(polls, locker.release(&held)).await.is_some();
            (finished, all_free(store, &wanted).await)
        }
    })
    .await;
}

/// Renewing: the lease is there afterwards, and can be renewed and released.
pub async fn renewal_dropped_at_any_await_harms_nothing(store: Store) {
    at_every_await(0, |polls| {
        let store = &store;
        async move {
            let mine = held(&names(&name("drop-renew")), &owner(), LONG);
            granted(ask(store, &mine).await);
            let finished = polled(polls, store.renew(std::slice::from_ref(&mine))).await.is_some();
            let again = renew(store, &mine).await;
            assert_eq!(again, Renewed::Extended);
            give_back(store, &mine).await;
            (finished, all_free(store, &mine.names).await)
        }
    })
    .await;
}

/// How long it takes until the last of them is free.
async fn all_free(store: &Store, names: &Names) -> Duration {
    let began = Instant::now();
    let mut last = began;
    for name in names.as_slice() {
        last = last.max(free(store, name).await);
    }
    last - began
}

/// How long it takes until the free name can be had and nobody stands in line for it.
async fn nobody_in_line(store: &Store, names: &Names) -> Duration {
    let began = Instant::now();
    let mine = held(names, &owner(), LONG);
    loop {
        if let Attempt::Granted(_) = ask(store, &mine).await {
            let lease = inspect(store, &names.as_slice()[0]).await;
            if lease.expect("it is held").waiters.is_none_or(|waiters| waiters == 0) {
                break;
            }
        }
        assert!(began.elapsed() < PATIENCE, "a place in line was left");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let took = began.elapsed();
    give_back(store, &mine).await;
    took
}

/// Waits until the name is free, and still free after everything that was on its way has arrived. Returns since
/// when it was.
async fn free(store: &Store, name: &LockName) -> Instant {
    let began = Instant::now();
    let mut free_since = None;
    while free_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(20)) {
        match inspect(store, name).await {
            None => _ = free_since.get_or_insert_with(Instant::now),
            Some(lease) => {
                free_since = None;
                assert!(began.elapsed() < PATIENCE, "an orphan was left: {lease:?}");
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    free_since.unwrap_or(began)
}
