//! The promises of a lock store, kept on one real Redis server.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_lock::backend::{Attempt, Backend, Order, Released, Request};
use leasehold_lock::{LockError, LockName, Locker, Names, Owner, Redis, Redlock, Settings, Ttl};
use leasehold_testkit::servers::{Persistence, RedisServer};

/// A server that nobody stops, so that a disk which is slow for a moment takes no part.
fn start() -> RedisServer {
    RedisServer::options().persistence(Persistence::None).start()
}

leasehold_testkit::lock_suite!(async {
    let server = start();
    let store = Redis::open(&server.url()).unwrap().with_claim_time(Duration::from_secs(1));
    (server, store)
});

#[tokio::test]
async fn a_prefix_under_which_a_lock_could_be_one_of_our_own_keys_is_refused() {
    let server = start();
    let redlock = server.url().replace("redis://", "redlock://");
    for prefix in ["", "lease", "leasehold:", "leasehold:locks:"] {
        let redis = Locker::new(Redis::open(&server.url()).unwrap().with_prefix(prefix));
        let redlock = Locker::new(Redlock::open(&redlock).unwrap().with_prefix(prefix));
        for locker in [redis, redlock] {
            let refused = locker.acquire("redlock").await;
            assert!(matches!(refused, Err(LockError::Refused { .. })), "{prefix:?}: {refused:?}");
        }
    }
    assert_eq!(server.command::<u64>(&["DBSIZE"]), 0);
}

/// Releases that go to the server together ring for each of those who wait, long before these would look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_of_many_at_once_wake_those_who_wait() {
    let long = Duration::from_secs(60);
    let server = start();
    let [holder, other] = [(); 2].map(|()| Locker::new(Redis::open(&server.url()).unwrap()));
    let (mut guards, mut waiters) = (Vec::new(), Vec::new());
    for number in 0..40 {
        let name = format!("job-{number}");
        guards.push(holder.acquire(&name).ttl(long).await.unwrap().granted().unwrap());
        let waiting = other.acquire(&name).wait(long).into_future();
        waiters.push(tokio::spawn(async move { (waiting.await.unwrap().granted(), Instant::now()) }));
    }
    let channels = || server.command::<Vec<String>>(&["PUBSUB", "CHANNELS", "leasehold:freed:*"]).len();
    let until = Instant::now() + Duration::from_secs(20);
    while channels() < 40 {
        assert!(Instant::now() < until, "{} of 40 wait", channels());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let began = Instant::now();
    let released = guards.into_iter().map(|guard| tokio::spawn(guard.release()));
    for release in released.collect::<Vec<_>>() {
        assert_eq!(release.await.unwrap().unwrap(), Released::Released);
    }
    let mut woken = Vec::new();
    for waiter in waiters {
        let (guard, at) = waiter.await.unwrap();
        assert!(guard.is_some());
        woken.push(at - began);
    }
    woken.sort_unstable();
    assert!(woken[woken.len() / 2] < Duration::from_millis(400), "woken after {woken:?}");
}

/// Releases that go to the server together are answered as each would be alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_of_many_at_once_says_what_is_no_lock_and_what_is_gone() {
    let server = start();
    let locker = Locker::new(Redis::open(&server.url()).unwrap());
    let mut guards = Vec::new();
    for number in 0..40 {
        guards.push(locker.acquire(format!("job-{number}")).await.unwrap().granted().unwrap());
    }
    let () = server.command(&["DEL", "lock:job-20", "lock:job-21"]);
    let () = server.command(&["HSET", "lock:job-20", "field", "value"]);
    let releases = guards.into_iter().map(|guard| tokio::spawn(guard.release()));
    for (number, release) in releases.collect::<Vec<_>>().into_iter().enumerate() {
        match (number, release.await.unwrap()) {
            (20, Err(LockError::Refused { .. })) | (21, Ok(Released::NotHeld)) => {}
            (20 | 21, other) => panic!("{number}: {other:?}"),
            (_, released) => assert_eq!(released.unwrap(), Released::Released),
        }
    }
    assert_eq!(server.command::<Vec<String>>(&["KEYS", "lock:*"]), ["lock:job-20"]);
}

/// Those who died in line are passed over in the script of the release, and none of them has its claim time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_dead_waiters_cost_less_than_the_claim_time_of_one() {
    const CLAIM_DEFAULT: Duration = Duration::from_millis(250);
    let long = Duration::from_secs(60);
    let server = start();
    let store = Arc::new(Redis::open(&server.url()).unwrap());
    let locker = Locker::with_settings(store.clone(), Settings::default());
    let mut lines = Vec::new();
    for number in 0..9 {
        let name = format!("job-{number}");
        let first = locker.acquire(&name).ttl(long).in_order().await.unwrap().granted().unwrap();
        for _ in 0..5 {
            let (names, owner) = (Names::try_from(&name).unwrap(), Owner::random(None));
            let ttl = Ttl::new(long).unwrap();
            let dead = Request { names: &names, owner: &owner, ttl, order: Order::Fifo };
            assert!(matches!(store.try_acquire(&dead).await, Ok(Attempt::Busy(_))));
        }
        let waiter = tokio::spawn(locker.acquire(&name).ttl(long).wait(long).in_order().into_future());
        lines.push((first, waiter));
    }
    // For so long a waiter that says nothing counts as alive.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let mut cost = Vec::new();
    for (first, waiter) in lines {
        let began = Instant::now();
        first.release().await.unwrap();
        let next = waiter.await.unwrap().unwrap().granted().expect("its turn");
        cost.push(began.elapsed());
        next.release().await.unwrap();
    }
    cost.sort_unstable();
    assert!(cost[cost.len() / 2] < CLAIM_DEFAULT, "five dead waiters cost {cost:?}");
    let left: Vec<String> = server.command(&["KEYS", "leasehold:*:*"]);
    assert_eq!(left, Vec::<String>::new(), "something was left of the lines");
}

/// Releases that go to the server together are decided for each: some names have a line, some have none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_releases_of_many_at_once_hand_over_to_their_lines() {
    let long = Duration::from_secs(60);
    let server = start();
    let store = Arc::new(Redis::open(&server.url()).unwrap().with_claim_time(long));
    let locker = Locker::with_settings(store.clone(), Settings::default());
    let mut leases = Vec::new();
    for number in 0..40 {
        let name = format!("job-{number}");
        let guard = locker.acquire(&name).ttl(long).await.unwrap().granted().unwrap();
        let waiter = (number % 2 == 0)
            .then(|| tokio::spawn(locker.acquire(&name).ttl(long).wait(long).in_order().into_future()));
        leases.push((name, guard, waiter));
    }
    let lines = || server.command::<Vec<String>>(&["KEYS", "leasehold:queue:*"]).len();
    let until = Instant::now() + Duration::from_secs(20);
    while lines() < 20 {
        assert!(Instant::now() < until, "{} lines", lines());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let releases = leases.into_iter().map(|(name, guard, waiter)| {
        let locker = locker.clone();
        tokio::spawn(async move {
            assert_eq!(guard.release().await.unwrap(), Released::Released);
            let plain = locker.acquire(&name).ttl(long).no_wait().await.unwrap().granted();
            assert_eq!(plain.is_none(), waiter.is_some(), "{name}");
            if let Some(waiter) = waiter {
                drop(waiter.await.unwrap().unwrap().granted().expect("its turn"));
            }
        })
    });
    for release in releases.collect::<Vec<_>>() {
        release.await.unwrap();
    }
}

/// Who is never told still finds out in time that its turn has come, and keeps its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn line_keeps_its_order_when_no_message_arrives() {
    let server = start();
    let () = server.command(&["ACL", "SETUSER", "deaf", "on", ">word", "~*", "resetchannels", "+@all"]);
    let url = server.url().replace("redis://", "redis://deaf:word@");
    let locker = Locker::new(Redis::open(&url).unwrap().with_claim_time(Duration::from_secs(2)));
    // On a machine that stands still for longer than the claim time one may miss its turn, but not every time.
    let mut turns = Vec::new();
    for attempt in 0..3 {
        turns = turns_in_line(&locker, &format!("job-{attempt}")).await;
        if turns == [0, 1, 2, 3] {
            return;
        }
    }
    panic!("the turns were {turns:?}");
}

/// Has four wait in order, and says in which order they got the lock.
async fn turns_in_line(locker: &Locker, name: &str) -> Vec<u32> {
    let long = Duration::from_secs(60);
    let guard = locker.acquire(name).ttl(long).await.unwrap().granted().unwrap();
    let turns = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..4 {
        let (acquire, turns) = (locker.acquire(name).ttl(long).wait(long).in_order(), turns.clone());
        waiters.push(tokio::spawn(async move {
            let guard = acquire.await.unwrap().granted().expect("its turn");
            turns.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        let until = Instant::now() + Duration::from_secs(20);
        while locker.inspect(&LockName::parse(name).unwrap()).await.unwrap().unwrap().waiters
            != Some(number + 1)
        {
            assert!(Instant::now() < until, "not in line");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    let turns = turns.lock().unwrap();
    turns.clone()
}

/// A replica says of every write that it is none of its business, which may be over in a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_does_not_get_through_is_sent_three_times_and_no_more() {
    let server = RedisServer::options().args(&["--replicaof", "127.0.0.1", "1"]).start();
    let locker = Locker::new(Redis::open(&server.url()).unwrap());
    let answer = locker.acquire("job").wait(Duration::from_secs(30)).await;
    assert!(matches!(answer, Err(LockError::Unknown { .. })), "{answer:?}");
    assert_eq!(server.info("errorstats", "errorstat_READONLY"), "count=3");
}
