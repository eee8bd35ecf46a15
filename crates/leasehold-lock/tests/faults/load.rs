//! Faults in the middle of much work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold_lock::backend::Released;
use leasehold_lock::{Acquired, LockError, Locker, Redis};
use leasehold_testkit::Random;
use leasehold_testkit::servers::RedisServer;

use crate::support::{LONG, fenced, granted, lost, owner_on, until};

/// Pitfall 20: releases and renewals cross each other all the time. None brings a lock back, none is taken
/// for a loss, and no release says anything but that it released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_20_renewal_that_crosses_a_release_brings_nothing_back() {
    let server = RedisServer::start();
    let locker = Locker::new(Redis::open(&server.url()).unwrap());
    let seed = Random::seed_of_this_run("pitfall_20");
    let ttl = Duration::from_millis(900);
    let tasks: Vec<_> = (0..64u64)
        .map(|task| {
            let locker = locker.clone();
            let mut random = Random::new(seed ^ task);
            tokio::spawn(async move {
                let began = Instant::now();
                let (mut rounds, mut slow) = (0, 0);
                while began.elapsed() < Duration::from_secs(4) {
                    let name = format!("job-{task}-{rounds}");
                    let asked = Instant::now();
                    let guard = granted(locker.acquire(&name).ttl(ttl).no_wait().await);
                    // Around the moment at which it is renewed.
                    let pause = ttl / 3 + Duration::from_micros(random.within(0..4_000));
                    tokio::time::sleep(pause - Duration::from_millis(2)).await;
                    let released = guard.release().await.unwrap();
                    // On a machine that stood still for long the lease may really have ended.
                    if asked.elapsed() < ttl / 2 {
                        assert_eq!(released, Released::Released);
                    } else {
                        slow += 1;
                    }
                    rounds += 1;
                }
                (rounds, slow)
            })
        })
        .collect();
    let (mut rounds, mut slow) = (0, 0);
    for task in tasks {
        let (of_task, slow_ones) = task.await.unwrap();
        rounds += of_task;
        slow += slow_ones;
    }
    println!("{rounds} rounds, {slow} of them slow");
    let keys: Vec<String> = server.command(&["KEYS", "lock:*"]);
    assert!(keys.is_empty(), "brought back: {keys:?}");
    let run: String = server.command(&["INFO", "commandstats"]);
    assert!(run.contains("cmdstat_pexpire:"), "nothing was renewed");
    for reason in ["gone", "not-renewed", "held-too-long"] {
        let lost = lost(&locker, reason);
        assert!(lost <= slow, "released leases were taken for lost: {lost} {reason}, {slow} slow rounds");
    }
}

/// Pitfall 10: a server that is killed and started again in the middle of work has forgotten its scripts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_10_restart_under_load_is_unknown_at_worst_and_then_work_goes_on() {
    let (mut server, postgres) = (RedisServer::start(), leasehold_testkit::servers::Postgres::start());
    let (plain, with_fences) = (Locker::new(Redis::open(&server.url()).unwrap()), fenced(&server, &postgres));
    let (stop, count, inside) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut workers = Vec::new();
    for (locker, name) in
        [(&plain, "plain"), (&plain, "plain"), (&with_fences, "fenced"), (&with_fences, "fenced")]
    {
        let (locker, stop, count, inside) = (locker.clone(), stop.clone(), count.clone(), inside.clone());
        workers.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                match locker.acquire(name).ttl(LONG).wait(Duration::from_millis(200)).await {
                    Ok(Acquired::Granted(guard)) => {
                        if name == "plain" {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                            tokio::task::yield_now().await;
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                        count.fetch_add(1, Ordering::Relaxed);
                        let _ = guard.release().await;
                    }
                    Ok(Acquired::Busy(_)) | Err(LockError::Unknown { .. }) => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Err(error) => panic!("a restart must not be a refusal: {error:?}"),
                }
            }
        }));
    }
    for _ in 0..3 {
        let before = count.load(Ordering::Relaxed);
        until("work is in flight", async || count.load(Ordering::Relaxed) > before + 50).await;
        let run = server.info("server", "run_id");
        server.kill9();
        server.restart();
        assert_ne!(server.info("server", "run_id"), run, "it was started again");
    }
    let before = count.load(Ordering::Relaxed);
    until("work goes on", async || count.load(Ordering::Relaxed) > before + 50).await;
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.unwrap();
    }
    for name in ["plain", "fenced"] {
        until("nothing is left, long before its end", async || owner_on(&server, name).is_none()).await;
    }
}
