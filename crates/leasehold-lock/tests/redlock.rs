//! The promises of a lock store, kept over five independent Redis servers.

use std::sync::Arc;

use leasehold_lock::Redlock;
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
