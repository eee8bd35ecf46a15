//! Slots of a cluster that move from one master to another while their locks are in use.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_lock::{Acquired, Epochs, LockError, Locker, Redis};
use leasehold_testkit::servers::{Postgres, RedisCluster};

use crate::support::{Ledger, PATIENCE, until};

const NAME: &str = "{job}";
const LOCK_KEY: &str = "lock:{job}";
const MOVES: usize = 4;

/// What the workers saw.
#[derive(Debug, Clone, Default)]
struct Seen {
    ledger: Ledger,
    /// From each grant to the moment the holder began to give it back or had to stop.
    held: Arc<Mutex<Vec<(Instant, Instant)>>>,
    inside: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
}

async fn work(locker: Locker, seen: Seen) {
    while !seen.stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        match locker.acquire(NAME).ttl(Duration::from_secs(10)).wait(Duration::from_secs(1)).await {
            Ok(Acquired::Granted(guard)) => {
                let from = Instant::now();
                if let Some(fence) = guard.fence() {
                    seen.ledger.note(asked, fence);
                }
                let others = seen.inside.fetch_add(1, Ordering::SeqCst);
                assert_eq!(others, 0, "granted to two at a time");
                tokio::time::sleep(Duration::from_millis(1)).await;
                seen.inside.fetch_sub(1, Ordering::SeqCst);
                seen.held.lock().unwrap().push((from, Instant::now()));
                let _ = guard.release().await;
            }
            Ok(Acquired::Busy(_)) | Err(LockError::Unknown { .. }) => {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Err(error) => panic!("a move must not be a refusal: {error:?}"),
        }
    }
}

/// Moves the slot of the lock around, step by step, while four clients use it.
async fn move_under_load(epochs: Option<&Postgres>) {
    let cluster = RedisCluster::start();
    let url = cluster.url();
    let seen = Seen::default();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let redis = Redis::open(&url).unwrap();
            let redis = match epochs {
                Some(postgres) => redis.with_epochs(Epochs::open(&postgres.url()).unwrap()),
                None => redis,
            };
            tokio::spawn(work(Locker::new(redis), seen.clone()))
        })
        .collect();
    let count = |seen: &Seen| seen.held.lock().unwrap().len();
    until("work is in flight", async || count(&seen) > 20).await;
    let slot = cluster.slot_of(LOCK_KEY);
    let before = (answers(&cluster, "MOVED"), answers(&cluster, "ASK"));
    let mut on_the_way = 0;
    for _ in 0..MOVES {
        let from = cluster.master_of_slot(slot);
        let to = cluster.nodes().take(3).find(|node| *node != from).expect("another master");
        let mut moving = cluster.begin_slot_move(slot, to);
        // Half moved: keys that are not there yet are asked for at the new node.
        let half_way = count(&seen);
        tokio::time::sleep(Duration::from_millis(150)).await;
        // Now all keys are there, and yet the slot is the old node's.
        cluster.move_some_keys(&mut moving, 100);
        tokio::time::sleep(Duration::from_millis(150)).await;
        on_the_way += count(&seen) - half_way;
        cluster.finish_slot_move(moving);
        assert_eq!(cluster.master_of_slot(slot), to, "the slot has moved");
        let moved = count(&seen);
        until("work goes on at the new master", async || count(&seen) > moved + 20).await;
    }
    seen.stop.store(true, Ordering::Relaxed);
    for worker in workers {
        tokio::time::timeout(PATIENCE, worker).await.expect("it stops").expect("no worker panicked");
    }
    let after = (answers(&cluster, "MOVED"), answers(&cluster, "ASK"));
    println!("{on_the_way} grants on the way; MOVED and ASK {before:?}, then {after:?}");
    assert!(before.0 < after.0, "nobody was told that the slot has moved: {before:?}, {after:?}");
    assert!(before.1 < after.1, "nobody was sent to the new node while it moved: {before:?}, {after:?}");
    // A fence takes several keys, and those of a slot on its way are only granted one by one.
    assert!(on_the_way > 0 || epochs.is_some(), "nothing was granted while the slot was on its way");
    let mut held = seen.held.lock().unwrap().clone();
    held.sort_unstable();
    for pair in held.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two held it at the same time: {pair:?}");
    }
    seen.ledger.check();
    assert_eq!(seen.ledger.count() > 0, epochs.is_some());
}

/// Answers with this error that the nodes have given so far.
fn answers(cluster: &RedisCluster, error: &str) -> u64 {
    let of_node = |node| {
        let errors = cluster.server(node).info("errorstats", &format!("errorstat_{error}"));
        errors.strip_prefix("count=").map_or(0, |count| count.parse::<u64>().unwrap())
    };
    cluster.nodes().map(of_node).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_slots_grant_nothing_twice() {
    move_under_load(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_slots_grant_nothing_twice_and_take_no_fence_back() {
    let postgres = Postgres::start();
    move_under_load(Some(&postgres)).await;
}
