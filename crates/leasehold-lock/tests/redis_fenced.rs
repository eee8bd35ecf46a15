//! The promises of a lock store, kept on one Redis server with epochs from PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use leasehold_lock::{Epochs, Redis};
use leasehold_testkit::lock_suite::{Store, keep_all};
use leasehold_testkit::servers::{Postgres, RedisServer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_with_epochs_keeps_the_promises_of_a_fence() {
    let (server, postgres) = (RedisServer::start(), Postgres::start());
    let redis = Redis::open(&server.url()).unwrap().with_claim_time(Duration::from_secs(1));
    let store: Store = Arc::new(redis.with_epochs(Epochs::open(&postgres.url()).unwrap()));
    keep_all(&store).await;
}
