//! A master of a cluster that stands still without closing a connection, while the other masters answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold_lock::backend::ListQuery;
use leasehold_lock::{Acquired, LockError, Locker, Redis, StoreError};
use leasehold_testkit::servers::{Persistence, RedisCluster};

use crate::support::{LONG, granted, in_time, until, until_within};

fn start() -> RedisCluster {
    RedisCluster::options()
        .args(&["--cluster-require-full-coverage", "no"])
        .persistence(Persistence::None)
        .start()
}

fn key(name: &str) -> String {
    format!("lock:{name}")
}

/// One name for each master, in no order.
fn one_name_per_master(cluster: &RedisCluster) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in (0..).map(|number| format!("job-{number}")) {
        if names.iter().all(|other| cluster.master_of(&key(other)) != cluster.master_of(&key(&name))) {
            names.push(name);
        }
        if names.len() == 3 {
            break;
        }
    }
    names
}

/// Nothing tells a client that goes on asking it that its replica has taken over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_client_follows_the_failover_of_a_master_that_fell_silent() {
    let mut cluster = start();
    let names = one_name_per_master(&cluster);
    let locker = Locker::new(Redis::open(&cluster.url()).unwrap());
    for name in &names {
        granted(locker.acquire(name).await).release().await.unwrap();
    }
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let workers: Vec<_> = names[1..]
        .iter()
        .map(|name| {
            let (name, locker, stop, count) = (name.clone(), locker.clone(), stop.clone(), count.clone());
            tokio::spawn(async move {
                let mut longest = Duration::ZERO;
                while !stop.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    granted(locker.acquire(&name).await).release().await.unwrap();
                    longest = longest.max(asked.elapsed());
                    count.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                longest
            })
        })
        .collect();
    until("work is in flight", async || count.load(Ordering::Relaxed) > 20).await;
    let (silent, replica) = (cluster.master_of(&key(&names[0])), cluster.replica_of(&key(&names[0])));
    cluster.server_mut(silent).pause();
    // Somebody asks all the time, as long as nobody else has its slots, too.
    until("the replica has taken over, and its names can be had", async || {
        match locker.acquire(&names[0]).ttl(LONG).no_wait().await {
            Ok(Acquired::Granted(guard)) => guard.release().await.is_ok(),
            Ok(Acquired::Busy(_)) | Err(LockError::Unknown { .. }) => false,
            Err(error) => panic!("a silent server must not be a refusal: {error:?}"),
        }
    })
    .await;
    assert_eq!(cluster.master_of(&key(&names[0])), replica, "nothing has changed");
    let before = count.load(Ordering::Relaxed);
    until("the others go on", async || count.load(Ordering::Relaxed) > before + 20).await;
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        let longest = worker.await.expect("the others are granted all the time");
        println!("the others waited {longest:?} at most");
        assert!(longest < Duration::from_secs(2), "the others waited {longest:?} for the silent one");
    }
}

/// The silent one is among those of the URL, and the others tell of it once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_is_made_while_a_master_is_silent_also_for_those_who_wait_only_for_a_moment() {
    let mut cluster = start();
    let names = one_name_per_master(&cluster);
    for node in [cluster.replica_of(&key(&names[0])), cluster.master_of(&key(&names[0]))] {
        cluster.server_mut(node).pause();
    }
    let patient = Locker::new(Redis::open(&cluster.url()).unwrap());
    let guard = granted(in_time("an answer", patient.acquire(&names[1]).into_future()).await);
    guard.release().await.unwrap();
    let impatient = Locker::new(Redis::open(&cluster.url()).unwrap());
    until_within(Duration::from_secs(10), "an impatient one is served", async || {
        let asked = impatient.acquire(&names[2]).no_wait().into_future();
        matches!(tokio::time::timeout(Duration::from_millis(300), asked).await, Ok(Ok(Acquired::Granted(_))))
    })
    .await;
}

/// The lease of the silent master is lost in time, and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_on_other_masters_outlive_one_that_is_silent() {
    let mut cluster = start();
    let names = one_name_per_master(&cluster);
    let locker = Locker::new(Redis::open(&cluster.url()).unwrap());
    for ttl in [Duration::from_millis(2_500), Duration::from_secs(6)] {
        let mut guards = Vec::new();
        for name in &names {
            guards.push(granted(locker.acquire(name).ttl(ttl).await));
        }
        let nodes = [cluster.replica_of(&key(&names[0])), cluster.master_of(&key(&names[0]))];
        nodes.iter().for_each(|node| cluster.server_mut(*node).pause());
        tokio::time::sleep(ttl * 2).await;
        guards[0].check().expect_err("nobody answered its renewals");
        for guard in &guards[1..] {
            guard.check().expect("it was renewed");
        }
        nodes.iter().for_each(|node| cluster.server_mut(*node).resume());
        cluster.wait_until_settled();
        for guard in guards {
            let _ = guard.release().await;
        }
    }
}

/// Whoever lists all pages sees what the others have, and is told at the end that it is not all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_shows_what_the_other_masters_have_before_it_says_that_one_is_silent() {
    let mut cluster = start();
    let names = one_name_per_master(&cluster);
    let locker = Locker::new(Redis::open(&cluster.url()).unwrap());
    for name in &names {
        granted(locker.acquire(name).ttl(LONG).no_renewal().await).detach();
    }
    // The one that is listed first.
    let address = |name: &&String| cluster.addresses()[cluster.master_of(&key(name)).index()].clone();
    let silent = names.iter().min_by_key(address).expect("there are three");
    let nodes = [cluster.replica_of(&key(silent)), cluster.master_of(&key(silent))];
    nodes.iter().for_each(|node| cluster.server_mut(*node).pause());
    let (found, end) = in_time("the end", list(&locker)).await;
    assert!(matches!(end, Err(StoreError::Unknown(_))), "{end:?}");
    let others = names.iter().filter(|name| *name != silent);
    assert_eq!(found, others.cloned().collect(), "with {silent} at a silent master");
    nodes.iter().for_each(|node| cluster.server_mut(*node).resume());
    cluster.wait_until_settled();
    let (found, end) = list(&locker).await;
    end.expect("all of them answer");
    assert_eq!(found, names.into_iter().collect());
}

async fn list(locker: &Locker) -> (BTreeSet<String>, Result<(), StoreError>) {
    let mut found = BTreeSet::new();
    let mut query = ListQuery { prefix: String::new(), cursor: None, limit: 100 };
    loop {
        let page = match locker.list(&query).await {
            Ok(page) => page,
            Err(error) => return (found, Err(error)),
        };
        found.extend(page.leases.iter().map(|lease| lease.name.as_str().to_owned()));
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            return (found, Ok(()));
        }
    }
}
