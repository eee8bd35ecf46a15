//! The promises of a lock store, kept over five independent Redis servers.

use std::sync::Arc;

use leasehold_lock::{Locker, Redlock};
use leasehold_testkit::lock_suite::{Store, keep_all};
use leasehold_testkit::servers::{RedisServer, independent};

fn over(servers: &[RedisServer]) -> Redlock {
    let addresses: Vec<String> = servers.iter().map(RedisServer::address).collect();
    Redlock::open(&format!("redlock://{}", addresses.join(","))).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_servers_keep_the_promises() {
    let servers = independent(5);
    let store: Store = Arc::new(over(&servers));
    keep_all(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_is_a_set_too_and_has_fences() {
    let servers = independent(1);
    let store: Store = Arc::new(over(&servers));
    keep_all(&store).await;
}

/// Names share a thousand counters, however many there are, and nothing else stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_on_the_servers_does_not_grow_with_the_names() {
    const COUNTERS: usize = 1_024;
    const OTHER_FIELDS_MAX: usize = 8;
    let servers = independent(1);
    let locker = Locker::new(over(&servers));
    for round in 0..60 {
        let asks = (0..50).map(|number| {
            let acquire = locker.acquire(format!("job:{round}:{number}"));
            tokio::spawn(async move { acquire.await.unwrap().granted().unwrap().release().await.unwrap() })
        });
        for ask in asks.collect::<Vec<_>>() {
            ask.await.unwrap();
        }
    }
    let fields: usize = servers[0].command(&["HLEN", "leasehold:redlock"]);
    assert!(fields > COUNTERS / 2, "3,000 names have used most counters: {fields}");
    assert!(fields <= COUNTERS + OTHER_FIELDS_MAX, "{fields} fields");
    assert_eq!(servers[0].command::<u32>(&["DBSIZE"]), 1);
}
