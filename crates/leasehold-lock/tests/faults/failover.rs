//! A cluster's failover that loses writes which were answered: fences go on growing, a plain counter goes back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_lock::{Acquired, Epochs, Guarantee, LockError, Locker, Redis};
use leasehold_testkit::servers::{Postgres, RedisCluster};

use crate::support::{Ledger, take, until};

/// The braces put the lock, its fences and the plain counter into one slot, so they share their fate.
const NAME: &str = "{job}";
const LOCK_KEY: &str = "lock:{job}";
const PLAIN_COUNTER: &str = "plain:{job}";
const FAILOVERS: usize = 3;
const WORKERS: usize = 4;

/// Acquires and releases until told to stop. A failover may leave it without an answer, and nothing else.
async fn work(locker: Locker, ledger: Ledger, stop: Arc<AtomicBool>) -> usize {
    let mut unanswered = 0;
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        match locker.acquire(NAME).ttl(Duration::from_secs(2)).wait(Duration::from_secs(1)).await {
            Ok(Acquired::Granted(guard)) => {
                assert_eq!(guard.guarantee(), Guarantee::Fenced);
                ledger.note(asked, guard.fence().expect("never unfenced"));
                let _ = guard.release().await;
            }
            Ok(Acquired::Busy(_)) => {}
            Err(LockError::Unknown { .. }) => {
                unanswered += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("a failover must not be a refusal: {error:?}"),
        }
    }
    unanswered
}

/// Pitfalls 12 and 13: a failover loses the last grants and the last counts. The lock may have two owners
/// then; the fence of the second is higher all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_12_cluster_failover_that_loses_writes_never_takes_a_fence_back() {
    let (mut cluster, postgres) = (RedisCluster::start(), Postgres::start());
    let url = cluster.url();
    let open = || {
        let redis = Redis::open(&url).unwrap();
        Locker::new(redis.with_epochs(Epochs::open(&postgres.url()).unwrap()))
    };
    let (ledger, stop) = (Ledger::default(), Arc::new(AtomicBool::new(false)));
    // Every worker is a client of its own, as processes would be.
    let workers: Vec<_> =
        (0..WORKERS).map(|_| tokio::spawn(work(open(), ledger.clone(), stop.clone()))).collect();
    until("work is in flight", async || ledger.count() > 20).await;

    for failover in 0..FAILOVERS {
        let master = cluster.master_of(LOCK_KEY);
        assert_eq!(cluster.master_of(PLAIN_COUNTER), master, "both must fail over together");
        let _: i64 = cluster.server(master).command(&["INCR", PLAIN_COUNTER]);
        let cut = cluster.begin_lost_writes(LOCK_KEY);
        let at_the_cut = ledger.count();
        let mut plain_before = 0;
        for _ in 0..20 {
            plain_before = cluster.server(cut.master).command::<i64>(&["INCR", PLAIN_COUNTER]);
        }
        until("grants are issued that will be lost", async || ledger.count() > at_the_cut + 20).await;
        let before = ledger.highest().unwrap();
        let new_master = cluster.fail_over(cut);
        assert_ne!(new_master, master);

        // The same failover, the naive way: this is what makes the test able to fail.
        let plain_after: i64 = cluster.server(new_master).command(&["INCR", PLAIN_COUNTER]);
        assert!(plain_after < plain_before, "nothing was lost: {plain_before}, then {plain_after}");

        let after_failover = ledger.count();
        until("work goes on after the failover", async || ledger.count() > after_failover + 20).await;
        let after = ledger.highest().unwrap();
        assert!(
            before.0 >> 32 < after.0 >> 32,
            "the new master has no epoch of its own: {before:?}, {after:?}"
        );
        if failover + 1 < FAILOVERS {
            cluster.restart(master);
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut unanswered = 0;
    for worker in workers {
        unanswered += worker.await.expect("a worker that did not panic");
    }
    println!("{} grants, {unanswered} without an answer", ledger.count());
    ledger.check();
}

/// Pitfall 13: a slot goes to another node, which issues fences there and loses them, and comes back before anybody has
/// asked for one since. The node that has it again was never started anew, and has the counter and the guard of then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_13_slot_that_comes_back_from_a_node_that_lost_writes_takes_no_fence_back() {
    let (mut cluster, postgres) = (RedisCluster::start(), Postgres::start());
    let redis = Redis::open(&cluster.url()).unwrap();
    let locker = Locker::new(redis.with_epochs(Epochs::open(&postgres.url()).unwrap()));
    let slot = cluster.slot_of(LOCK_KEY);
    let first = cluster.master_of_slot(slot);
    let second = cluster.masters().into_iter().find(|node| *node != first).expect("another master");
    for _ in 0..5 {
        take(&locker, NAME).await;
    }
    let _: i64 = cluster.server(first).command(&["INCR", PLAIN_COUNTER]);
    cluster.move_slot(slot, second);

    let cut = cluster.begin_lost_writes(LOCK_KEY);
    assert_eq!(cut.master, second);
    let plain: i64 = cluster.server(second).command(&["INCRBY", PLAIN_COUNTER, "10"]);
    let lost = take(&locker, NAME).await;
    cluster.fail_over(cut);
    cluster.move_slot(slot, first);
    let plain_after: i64 = cluster.server(first).command(&["INCR", PLAIN_COUNTER]);
    assert!(plain_after < plain, "nothing was lost: {plain}, then {plain_after}");

    // The client finds out where the slot is while it asks.
    let found = Mutex::new(None);
    until("somebody has the lock again", async || {
        let acquired = locker.acquire(NAME).wait(Duration::from_secs(1)).await;
        let fence = match acquired {
            Ok(Acquired::Granted(guard)) => guard.fence(),
            Ok(Acquired::Busy(_)) | Err(LockError::Unknown { .. }) => None,
            Err(error) => panic!("a failover must not be a refusal: {error:?}"),
        };
        *found.lock().unwrap() = fence;
        fence.is_some()
    })
    .await;
    let fence = found.into_inner().unwrap();
    assert!(fence > Some(lost), "{lost:?}, then {fence:?}");
}
