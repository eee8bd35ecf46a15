//! The promises of a lock store, kept on one Redis server with epochs from PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use leasehold_lock::{Epochs, Locker, Redis};
use leasehold_testkit::lock_suite::{Store, keep_all};
use leasehold_testkit::servers::{Postgres, RedisServer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_with_epochs_keeps_the_promises_of_a_fence() {
    let (server, postgres) = (RedisServer::start(), Postgres::start());
    let redis = Redis::open(&server.url()).unwrap().with_claim_time(Duration::from_secs(1));
    let store: Store = Arc::new(redis.with_epochs(Epochs::open(&postgres.url()).unwrap()));
    keep_all(&store).await;
}

/// However many names were used: names of one slot share its counter, and nothing else stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_free_need_no_memory_on_the_server() {
    let (server, postgres) = (RedisServer::start(), Postgres::start());
    let redis = Redis::open(&server.url()).unwrap();
    let locker = Locker::new(redis.with_epochs(Epochs::open(&postgres.url()).unwrap()));
    for round in 0..40 {
        let asks = (0..50).map(|number| {
            let acquire = locker.acquire(format!("{{job}}:{round}:{number}"));
            let acquire = if number % 2 == 0 { acquire } else { acquire.in_order() };
            tokio::spawn(async move { acquire.await.unwrap().granted().unwrap().release().await.unwrap() })
        });
        for ask in asks.collect::<Vec<_>>() {
            ask.await.unwrap();
        }
    }
    let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
    keys.sort();
    assert!(
        keys.len() == 2
            && keys[0].starts_with("leasehold:fences:")
            && keys[1].starts_with("leasehold:guard:"),
        "{keys:?}"
    );
}
