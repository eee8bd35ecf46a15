//! Pitfall 2 again: requests that reach the store after the release that was meant for them.

use std::time::{Duration, Instant};

use leasehold_lock::backend::Released;
use leasehold_lock::{Acquire, Locker, Owner, Redis};
use leasehold_testkit::servers::{Direction, FaultProxy, RedisCluster, RedisServer};

use crate::support::{LONG, granted, in_time, owner_on, until, until_within};

/// A server behind a proxy, and a locker that only knows the proxy, and is known to the server.
async fn behind_proxy() -> (RedisServer, FaultProxy, Locker) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address()).await;
    let locker = Locker::new(Redis::open(&format!("redis://{}", proxy.address())).unwrap());
    granted(locker.acquire("warm").await).release().await.unwrap();
    (server, proxy, locker)
}

/// As for a client of the HTTP server: its guard is let go of, and the lease given back by its owner's token. The first
/// request, which was repeated, arrives after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_02_request_that_arrives_after_a_detached_lease_was_released_is_released_too() {
    const LATE: Duration = Duration::from_secs(2);
    const ROUNDS: u32 = 5;
    let (server, proxy, locker) = behind_proxy().await;
    for round in 0..ROUNDS {
        let name = format!("job-{round}");
        let began = Instant::now();
        proxy.delay(Direction::Requests, LATE);
        let asking = tokio::spawn(locker.acquire(&name).ttl(LONG).no_renewal().into_future());
        tokio::time::sleep(Duration::from_millis(100)).await;
        proxy.hang_up();
        proxy.pass().await;
        let held = granted(in_time("the repetition is answered", asking).await.unwrap()).detach();
        tokio::time::sleep((LATE / 2).saturating_sub(began.elapsed())).await;
        assert_eq!(locker.release(&held).await.unwrap(), Released::Released);
        let is_in_order = began.elapsed() < LATE && owner_on(&server, &name).is_none();
        let sent = proxy.traffic().request_bytes;
        until("the first request arrives", async || {
            owner_on(&server, &name).is_some() || proxy.traffic().request_bytes > sent + 1_000
        })
        .await;
        until_within(LONG / 6, "the name is free", async || owner_on(&server, &name).is_none()).await;
        if is_in_order {
            return;
        }
    }
    panic!("the release was late {ROUNDS} times in a row");
}

/// An acquisition is dropped, and its request arrives when it has been released three times.
async fn dropped_request_that_arrives_late_is_released(acquire: impl FnOnce(&Locker) -> Acquire) {
    const LATE: Duration = Duration::from_secs(3);
    let (server, proxy, locker) = behind_proxy().await;
    proxy.delay(Direction::Requests, LATE);
    let asking = tokio::spawn(acquire(&locker).ttl(LONG).into_future());
    tokio::time::sleep(Duration::from_millis(100)).await;
    proxy.hang_up();
    asking.abort();
    assert!(asking.await.is_err(), "it was dropped on its way");
    proxy.pass().await;
    // Nobody waits for what may come late.
    let began = Instant::now();
    locker.settle(LONG).await;
    let settled = began.elapsed();
    assert!(settled < LATE, "it took {settled:?} to settle");
    until("the request arrives", async || owner_on(&server, "job").is_some()).await;
    until_within(LONG / 6, "the name is free", async || owner_on(&server, "job").is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_02_request_that_arrives_seconds_after_it_was_dropped_is_released() {
    dropped_request_that_arrives_late_is_released(|locker| locker.acquire("job")).await;
}

/// As for a client of the HTTP server that sends a key: its token is made of the key, and no other process makes the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_02_request_with_a_token_of_this_process_is_released_as_late() {
    let acquire = |locker: &Locker| locker.acquire("job").owner_of_this_process(Owner::random(None));
    dropped_request_that_arrives_late_is_released(acquire).await;
}

/// A cluster's client sends a request again when its connection is lost, and does not tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_02_request_that_a_clusters_client_repeated_is_released_when_it_arrives() {
    const LATE: Duration = Duration::from_secs(2);
    const ROUNDS: u32 = 5;
    let cluster = RedisCluster::start();
    let proxies = cluster.put_behind_proxies().await;
    let addresses: Vec<String> = proxies.iter().map(FaultProxy::address).collect();
    let locker = Locker::new(Redis::open(&format!("redis-cluster://{}", addresses.join(","))).unwrap());
    granted(locker.acquire("warm").await).release().await.unwrap();
    let master = cluster.server(cluster.master_of("lock:{job}"));
    for name in (0..ROUNDS).map(|round| format!("{{job}}-{round}")) {
        let began = Instant::now();
        proxies.iter().for_each(|proxy| proxy.delay(Direction::Requests, LATE));
        let asking = tokio::spawn(locker.acquire(&name).ttl(LONG).into_future());
        tokio::time::sleep(Duration::from_millis(100)).await;
        for proxy in &proxies {
            proxy.hang_up();
            proxy.pass().await;
        }
        granted(in_time("the repetition is answered", asking).await.unwrap()).release().await.unwrap();
        if began.elapsed() >= LATE || owner_on(master, &name).is_some() {
            continue;
        }
        until("the first request arrives", async || owner_on(master, &name).is_some()).await;
        until_within(LONG / 6, "the name is free", async || owner_on(master, &name).is_none()).await;
        return;
    }
    panic!("the release was late {ROUNDS} times in a row");
}
