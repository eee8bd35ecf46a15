//! Those who wait for locks of a cluster are told of releases also after its servers have changed places.

use std::time::{Duration, Instant};

use leasehold_lock::{Guard, LockError, Locker, Redis};
use leasehold_testkit::servers::RedisCluster;

use crate::support::{LONG, granted, until};

/// Any name that is locked in the slot that moves or fails over.
const LOCK_KEY: &str = "lock:{job}";
const WAITERS: usize = 9;
/// Whoever is not told looks every half a second to a second, so most of them would be later than that.
const TOLD_WITHIN: Duration = Duration::from_millis(300);

/// Waits for a lock, and says when it was had. While a master is down nobody knows, which is a reason to ask again.
async fn wait(locker: Locker, name: String) -> (Guard, Instant) {
    loop {
        match locker.acquire(&name).wait(LONG).await {
            Err(LockError::Unknown { .. }) => {}
            acquired => return (granted(acquired), Instant::now()),
        }
    }
}

/// Has some wait, does something to the cluster, and measures how soon each of them hears of its release.
async fn are_told_after(mut cluster: RedisCluster, change: impl AsyncFnOnce(&mut RedisCluster)) {
    let [holder, other] = [(); 2].map(|()| Locker::new(Redis::open(&cluster.url()).unwrap()));
    let mut leases = Vec::new();
    for number in 0..WAITERS {
        let name = format!("{{job}}-{number}");
        let guard = granted(holder.acquire(&name).ttl(LONG).await);
        leases.push((guard, tokio::spawn(wait(other.clone(), name))));
    }
    until("somebody listens", async || {
        let master = cluster.server(cluster.master_of(LOCK_KEY));
        !master.command::<Vec<String>>(&["PUBSUB", "SHARDCHANNELS", "leasehold:freed:*"]).is_empty()
    })
    .await;
    let before = cluster.master_of(LOCK_KEY);
    change(&mut cluster).await;
    assert_ne!(cluster.master_of(LOCK_KEY), before, "nothing has changed");
    // Everybody looks within that time, and finds that it is not told any more.
    tokio::time::sleep(Duration::from_secs(3)).await;
    // And no more often than that: whoever is heard again does not go on connecting.
    let connections = || {
        let made = cluster.server(cluster.master_of(LOCK_KEY)).info("stats", "total_connections_received");
        made.parse::<u64>().unwrap()
    };
    // A machine that stands still for a moment may make them connect once more; whoever goes on does so all the time.
    let mut least = u64::MAX;
    for _ in 0..3 {
        let before = connections();
        tokio::time::sleep(Duration::from_secs(2)).await;
        least = least.min(connections() - before);
        println!("at least {least} connections were made in two seconds");
        if least < WAITERS as u64 {
            break;
        }
    }
    assert!(least < WAITERS as u64, "{least} connections were made for nothing");
    let mut told = Vec::new();
    for (guard, waiter) in leases {
        assert!(!waiter.is_finished(), "the lock was had by two");
        let began = Instant::now();
        guard.release().await.unwrap();
        let (next, at) = waiter.await.unwrap();
        told.push(at - began);
        next.release().await.unwrap();
    }
    told.sort_unstable();
    println!("woken after {told:?}");
    assert!(told[WAITERS / 2] < TOLD_WITHIN, "woken after {told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_told_after_their_slot_has_moved() {
    are_told_after(RedisCluster::start(), async |cluster| {
        let slot = cluster.slot_of(LOCK_KEY);
        let from = cluster.master_of_slot(slot);
        let to = cluster.nodes().take(3).find(|node| *node != from).expect("another master");
        let mut moving = cluster.begin_slot_move(slot, to);
        cluster.move_some_keys(&mut moving, 100);
        cluster.finish_slot_move(moving);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_told_after_their_master_has_died() {
    are_told_after(RedisCluster::start(), async |cluster| {
        let master = cluster.master_of(LOCK_KEY);
        let replica = cluster.replica_of(LOCK_KEY);
        cluster.server_mut(master).kill9();
        until("the replica has taken over", async || cluster.master_of(LOCK_KEY) == replica).await;
    })
    .await;
}
