//! Connections that have nothing to say: because nobody asked, or because they are dead and do not show it.

use std::time::Duration;

use leasehold_lock::link::{Link, Lua};
use leasehold_lock::{Locker, Postgres, Redis};
use leasehold_testkit::servers::{self, Direction, FaultProxy, RedisCluster, RedisServer};

use crate::support::{granted, in_time, until};

/// After a time without traffic one answer that is not waited for any more does not cost the client. Going on without
/// answers does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_of_a_cluster_that_nobody_asked_is_not_taken_for_one_that_is_silent() {
    let cluster = RedisCluster::start();
    let proxies = cluster.put_behind_proxies().await;
    let addresses: Vec<String> = proxies.iter().map(FaultProxy::address).collect();
    let link = Link::open(&format!("redis-cluster://{}", addresses.join(","))).unwrap();
    let script = Lua::new("return 1");
    let ask = async || link.run::<u32>(&script, &["job"], &[""]).await;
    assert_eq!(in_time("an answer", ask()).await.unwrap(), 1);
    tokio::time::sleep(Duration::from_millis(2_200)).await;
    proxies.iter().for_each(|proxy| proxy.swallow(Direction::Answers));
    let give_up = async || {
        assert!(tokio::time::timeout(Duration::from_millis(200), ask()).await.is_err(), "it was answered");
    };
    give_up().await;
    assert!(link.is_connected(), "left for one answer");
    until("it is left", async || {
        give_up().await;
        !link.is_connected()
    })
    .await;
}

/// Strands the connections under a lease that nothing but its renewals uses, and holds it for longer than it lasts.
async fn lease_is_renewed_over_a_new_connection(locker: Locker, proxy: &FaultProxy, ttl: Duration) {
    let guard = granted(locker.acquire("job").ttl(ttl).await);
    // Renewals may have a connection of their own.
    tokio::time::sleep(ttl / 2).await;
    guard.check().unwrap();
    let before = proxy.traffic().connections;
    proxy.strand();
    tokio::time::sleep(ttl * 3 / 2).await;
    guard.check().expect("it was renewed");
    assert!(proxy.traffic().connections > before);
    assert!(proxy.traffic().swallowed_request_bytes > 0, "nothing was stranded");
}

/// The renewals of a short lease are given up before an answer counts as lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_lease_on_redis_outlives_a_connection_that_falls_silent() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address()).await;
    let locker = Locker::new(Redis::open(&format!("redis://{}", proxy.address())).unwrap());
    lease_is_renewed_over_a_new_connection(locker, &proxy, Duration::from_millis(2_700)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_in_postgres_outlives_a_connection_that_falls_silent() {
    let server = servers::Postgres::start();
    let proxy = FaultProxy::start(server.address()).await;
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let locker = Locker::new(Postgres::open(&url).unwrap());
    lease_is_renewed_over_a_new_connection(locker, &proxy, Duration::from_secs(7)).await;
}
