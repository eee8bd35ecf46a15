//! The promises of a lock store, kept on a real Redis Cluster of six nodes: alone, and with fences.

use std::sync::Arc;
use std::time::Duration;

use leasehold_lock::{Epochs, Redis};
use leasehold_testkit::lock_suite::single;
use leasehold_testkit::servers::{Persistence, Postgres, RedisCluster};

/// A cluster whose nodes nobody stops, so that a disk which is slow for a moment takes no part.
fn start() -> RedisCluster {
    RedisCluster::options().persistence(Persistence::None).start()
}

fn on(cluster: &RedisCluster) -> Redis {
    let url = cluster.url();
    Redis::open(&url).unwrap().with_claim_time(Duration::from_secs(1))
}

mod alone {
    use super::*;

    leasehold_testkit::lock_suite!(async {
        let cluster = start();
        let store = on(&cluster);
        (cluster, store)
    });
}

mod with_epochs {
    use super::*;

    leasehold_testkit::lock_suite!(async {
        let (cluster, postgres) = (start(), Postgres::start());
        let store = on(&cluster).with_epochs(Epochs::open(&postgres.url()).unwrap());
        ((cluster, postgres), store)
    });
}

/// Listing goes through every master, a step at a time, and never stops one to look at all its keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_scans_every_master() {
    let cluster = start();
    single::listing_finds_every_lease_of_a_prefix_page_by_page(Arc::new(on(&cluster))).await;
    for master in cluster.masters() {
        let commands: String = cluster.server(master).command(&["INFO", "commandstats"]);
        assert!(commands.contains("cmdstat_scan:") && !commands.contains("cmdstat_keys:"), "{commands}");
    }
}
