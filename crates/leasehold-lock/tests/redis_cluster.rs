//! The promises of a lock store, kept on a real Redis Cluster of six nodes: alone, and with fences.
//!
//! A cluster takes seconds to start, so all promises are kept on one, one after the other.

use std::sync::Arc;
use std::time::Duration;

use leasehold_lock::{Epochs, Redis};
use leasehold_testkit::lock_suite::{Store, keep_all};
use leasehold_testkit::servers::{Postgres, RedisCluster};

fn on(cluster: &RedisCluster) -> Redis {
    let url = cluster.url();
    Redis::open(&url).unwrap().with_claim_time(Duration::from_secs(1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_keeps_the_promises_of_a_lease() {
    let cluster = RedisCluster::start();
    let store: Store = Arc::new(on(&cluster));
    keep_all(&store).await;
    // Listing goes through every master, a step at a time, and never stops one to look at all its keys.
    for master in cluster.masters() {
        let commands: String = cluster.server(master).command(&["INFO", "commandstats"]);
        assert!(commands.contains("cmdstat_scan:") && !commands.contains("cmdstat_keys:"), "{commands}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_with_epochs_keeps_the_promises_of_a_fence() {
    let (cluster, postgres) = (RedisCluster::start(), Postgres::start());
    let epochs = Epochs::open(&postgres.url()).unwrap();
    let store: Store = Arc::new(on(&cluster).with_epochs(epochs));
    keep_all(&store).await;
}
