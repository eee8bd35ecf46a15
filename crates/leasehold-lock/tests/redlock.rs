//! The promises of a lock store, kept over five independent Redis servers, and over a set of one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_lock::{Locker, Redlock};
use leasehold_testkit::lock_suite::{Store, cancel};
use leasehold_testkit::servers::{Persistence, RedisServer};

/// Servers that nobody stops, so that a disk which is slow for a moment takes no part.
fn independent(count: usize) -> Vec<RedisServer> {
    RedisServer::options().persistence(Persistence::None).start_independent(count)
}

fn over(servers: &[RedisServer]) -> Redlock {
    let addresses: Vec<String> = servers.iter().map(RedisServer::address).collect();
    Redlock::open(&format!("redlock://{}", addresses.join(","))).unwrap()
}

leasehold_testkit::lock_suite!(async {
    let servers = independent(5);
    let store = over(&servers);
    (servers, store)
});

/// One server is a set too, and has fences.
mod of_one_server {
    use super::*;

    leasehold_testkit::lock_suite!(async {
        let servers = independent(1);
        let store = over(&servers);
        (servers, store)
    });
}

/// A majority that is free is not enough: nothing is left on any of the servers, long before the leases would end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_at_any_await_is_undone_on_every_server() {
    const SOON: Duration = Duration::from_secs(5);
    let servers = independent(5);
    let store: Store = Arc::new(over(&servers));
    cancel::acquisition_dropped_at_any_await_leaves_nothing(store.clone()).await;
    are_empty_within(&servers, SOON).await;
    cancel::waiting_dropped_at_any_await_leaves_nothing(store.clone()).await;
    are_empty_within(&servers, SOON).await;
    cancel::release_dropped_at_any_await_still_releases(store.clone()).await;
    are_empty_within(&servers, SOON).await;
    cancel::release_without_a_guard_dropped_at_any_await_still_releases(store).await;
    are_empty_within(&servers, SOON).await;
}

async fn are_empty_within(servers: &[RedisServer], time_max: Duration) {
    let until = Instant::now() + time_max;
    for server in servers {
        loop {
            let left: Vec<String> = server.command(&["KEYS", "lock:*"]);
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < until, "left on {}: {left:?}", server.address());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
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
