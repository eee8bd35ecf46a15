//! Pitfalls 23, 24 and 26: guards that sleep, leak, and are dropped where one should not drop anything.

use std::time::Duration;

use leasehold_lock::{Clock, LeaseState, Locker, LostReason, Redis, Settings};
use leasehold_testkit::servers::RedisServer;

use crate::support::{LONG, granted, in_time, owner_on, until};

fn locker(server: &RedisServer) -> Locker {
    Locker::new(Redis::open(&server.url()).unwrap())
}

/// A machine that was suspended: its clock has gone on, its timers have not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_23_machine_that_was_suspended_has_lost_its_leases_at_once() {
    let server = RedisServer::start();
    let clock = Clock::manual();
    let store = std::sync::Arc::new(Redis::open(&server.url()).unwrap());
    let locker = Locker::with_settings(store, Settings { clock: clock.clone(), ..Settings::default() });
    let guard = granted(locker.acquire("job").ttl(LONG).await);
    assert_eq!(guard.state(), LeaseState::Held);
    clock.advance(LONG * 2);
    assert!(guard.check().is_err(), "at the first look");
    assert_eq!(guard.time_left(), Duration::ZERO);
    // No timer of its own would fire for a minute.
    assert_eq!(in_time("the signal", guard.lost()).await, LostReason::NotRenewed);
    assert!(guard.run(async {}).await.is_err());
}

/// A guard that nobody can drop any more is renewed for as long as was allowed, and no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_24_leaked_guard_is_not_renewed_for_ever() {
    let server = RedisServer::start();
    let locker = locker(&server);
    let ttl = Duration::from_secs(3);
    let guard = granted(locker.acquire("job").ttl(ttl).hold_max(Duration::from_secs(10)).await);
    std::mem::forget(guard);
    tokio::time::sleep(ttl + ttl / 3).await;
    assert!(owner_on(&server, "job").is_some(), "renewed until its cap");
    until("not renewed beyond it", async || owner_on(&server, "job").is_none()).await;
}

/// The holder's task is aborted, or panics: its guard is dropped, and the lock is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_24_aborted_and_panicking_holders_give_the_lock_back() {
    let server = RedisServer::start();
    let locker = locker(&server);
    for panics in [false, true] {
        let holder = tokio::spawn({
            let locker = locker.clone();
            async move {
                let _guard = granted(locker.acquire("job").ttl(LONG).await);
                assert!(!panics, "on purpose");
                std::future::pending::<()>().await;
            }
        });
        if panics {
            assert!(holder.await.unwrap_err().is_panic());
        } else {
            until("it is held", async || owner_on(&server, "job").is_some()).await;
            holder.abort();
        }
        until("it is given back", async || owner_on(&server, "job").is_none()).await;
    }
}

/// The runtime ends while a lock is held: it is not renewed any more, and the next runtime releases it.
#[test]
fn pitfall_24_runtime_that_ends_stops_the_renewal_and_the_next_one_releases() {
    let server = RedisServer::start();
    let locker = locker(&server);
    let (short, long) = {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let short = granted(locker.acquire("short").ttl(Duration::from_millis(500)).await);
            (short, granted(locker.acquire("long").ttl(LONG).await))
        })
    };
    // Outside of any runtime, after the one that served them is gone.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(owner_on(&server, "short"), None, "nobody renews it any more");
    assert!(short.check().is_err());
    drop(short);
    drop(long);
    assert!(owner_on(&server, "long").is_some(), "nobody is left to release it");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        granted(locker.acquire("another").wait(LONG).await).release().await.unwrap();
        until("what was dropped is released now", async || owner_on(&server, "long").is_none()).await;
    });
}

/// Dropped on a runtime with one thread, from within it.
#[tokio::test(flavor = "current_thread")]
async fn pitfall_26_guard_dropped_on_a_single_thread_is_given_back() {
    let server = RedisServer::start();
    let locker = locker(&server);
    drop(granted(locker.acquire("job").ttl(LONG).await));
    until("it is given back", async || owner_on(&server, "job").is_none()).await;
}

/// Dropped on a thread that has no runtime, while the runtime goes on elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_26_guard_dropped_outside_of_the_runtime_is_given_back() {
    let server = RedisServer::start();
    let locker = locker(&server);
    let guard = granted(locker.acquire("job").ttl(LONG).await);
    std::thread::spawn(move || drop(guard)).join().expect("dropping does not panic");
    until("it is given back", async || owner_on(&server, "job").is_none()).await;
}

/// Dropped by the runtime itself while it shuts down: no panic, no wait; the lease ends by itself.
#[test]
fn pitfall_26_guard_dropped_by_a_runtime_that_shuts_down_does_not_panic_or_block() {
    let server = RedisServer::start();
    let locker = locker(&server);
    for workers in [1, 2] {
        let name = format!("job-{workers}");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap();
        runtime.block_on(async {
            let guard = granted(locker.acquire(&name).ttl(Duration::from_secs(2)).wait(LONG).await);
            tokio::spawn(async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            });
            tokio::time::sleep(Duration::from_millis(50)).await;
        });
        assert!(owner_on(&server, &name).is_some());
        runtime.shutdown_timeout(Duration::from_secs(5));
        let deadline = std::time::Instant::now() + LONG;
        while owner_on(&server, &name).is_some() {
            assert!(std::time::Instant::now() < deadline, "it did not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A guard inside a value that drops a guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_26_guard_dropped_inside_another_drop_is_given_back() {
    struct Nested(Option<leasehold_lock::Guard>, Option<Box<Nested>>);
    impl Drop for Nested {
        fn drop(&mut self) {
            drop(self.1.take());
            drop(self.0.take());
        }
    }
    let server = RedisServer::start();
    let locker = locker(&server);
    let inner = Nested(Some(granted(locker.acquire("inner").ttl(LONG).await)), None);
    let outer = Nested(Some(granted(locker.acquire("outer").ttl(LONG).await)), Some(Box::new(inner)));
    drop(outer);
    for name in ["inner", "outer"] {
        until("it is given back", async || owner_on(&server, name).is_none()).await;
    }
}
