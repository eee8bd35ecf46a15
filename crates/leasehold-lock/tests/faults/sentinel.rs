//! Locks on the master that Sentinel names.

use std::time::{Duration, Instant};

use leasehold_lock::{Acquired, Epochs, LeaseState, LockError, Locker, Redis};
use leasehold_testkit::servers::{Postgres, RedisSentinel};

use crate::support::{PATIENCE, granted, in_time, take, until};

/// What somebody would count with who has no epochs.
const PLAIN_COUNTER: &str = "plain:job";

fn url(sentinel: &RedisSentinel) -> String {
    format!("redis-sentinel://{}/{}", sentinel.sentinel_addresses().join(","), sentinel.master_name())
}

fn on(sentinel: &RedisSentinel) -> Redis {
    Redis::open(&url(sentinel)).unwrap().with_claim_time(Duration::from_secs(1))
}

mod promises {
    use super::*;

    leasehold_testkit::lock_suite!(async {
        let sentinel = RedisSentinel::start();
        let store = on(&sentinel);
        (sentinel, store)
    });
}

mod promises_with_epochs {
    use super::*;

    leasehold_testkit::lock_suite!(async {
        let (sentinel, postgres) = (RedisSentinel::start(), Postgres::start());
        let store = on(&sentinel).with_epochs(Epochs::open(&postgres.url()).unwrap());
        ((sentinel, postgres), store)
    });
}

/// Fences only grow over failovers, of which each forgets what the dead master had not yet passed on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_with_epochs_takes_no_fence_back_over_failovers() {
    let (mut sentinel, postgres) = (RedisSentinel::start(), Postgres::start());
    let locker = Locker::new(on(&sentinel).with_epochs(Epochs::open(&postgres.url()).unwrap()));
    let mut last = take(&locker, "job").await;
    for failover in 0..2 {
        let old = sentinel.master().address();
        let _: i64 = sentinel.master().command(&["INCR", PLAIN_COUNTER]);
        let cut = sentinel.begin_lost_writes();
        let plain_before: i64 = sentinel.servers()[cut].command(&["INCR", PLAIN_COUNTER]);
        let lost = take(&locker, "job").await;
        assert!(last < lost, "{last:?}, then {lost:?}");
        last = lost;
        let new_master = sentinel.fail_over(cut);
        assert_ne!(new_master.address(), old, "another server is the master");
        // The same failover, the naive way: this is what makes the test able to fail.
        let plain_after: i64 = new_master.command(&["INCR", PLAIN_COUNTER]);
        assert_eq!(plain_after, plain_before, "failover {failover} has lost nothing");
        let until_end = Instant::now() + PATIENCE;
        let fence = loop {
            // While the client finds the new master it may be without an answer, and nothing else.
            match locker.acquire("job").wait(PATIENCE).await {
                Ok(Acquired::Granted(guard)) => break guard.fence().expect("never unfenced"),
                Err(LockError::Unknown { .. }) if Instant::now() < until_end => {}
                other => panic!("after failover {failover}: {other:?}"),
            }
        };
        assert!(last.0 >> 32 < fence.0 >> 32, "the new master has no epoch of its own: {last:?}, {fence:?}");
        last = fence;
        sentinel.restart_killed();
    }
}

/// A failover while a lock is held: the holder is told the truth, whichever it is, and locks can be had again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_failover_leaves_no_holder_in_the_dark_and_no_lock_out_of_reach() {
    let mut sentinel = RedisSentinel::start();
    let locker = Locker::new(Redis::open(&url(&sentinel)).unwrap());
    let guard = granted(locker.acquire("held").ttl(Duration::from_secs(3)).await);
    let old = sentinel.master().address();
    let new = sentinel.kill_master().address();
    assert_ne!(old, new, "another server is the master");
    // The lock was copied to the replica before the master died, or not, or its time was over.
    let on_new_master = || -> Option<String> { sentinel.master().command(&["GET", "lock:held"]) };
    in_time("the holder knows", async {
        loop {
            match guard.state() {
                LeaseState::Lost => break,
                LeaseState::Held if on_new_master().as_deref() == Some(guard.owner().as_str()) => break,
                LeaseState::Held | LeaseState::Doubtful => {
                    tokio::time::sleep(Duration::from_millis(20)).await
                }
            }
        }
    })
    .await;
    match guard.state() {
        LeaseState::Lost => until("it is free", async || on_new_master().is_none()).await,
        LeaseState::Held | LeaseState::Doubtful => {
            let rival = locker.acquire("held").no_wait().await;
            assert!(matches!(rival, Ok(Acquired::Busy(_))), "{rival:?}");
            // It goes on being renewed, on the new master.
            tokio::time::sleep(Duration::from_secs(4)).await;
            assert_eq!(guard.state(), LeaseState::Held);
        }
    }
    drop(guard);
    let again = locker.acquire("held").wait(PATIENCE).await;
    granted(again).release().await.unwrap();
    granted(locker.acquire("another").wait(PATIENCE).await).release().await.unwrap();
}
