//! The promises of a lock store, kept over TLS.

use std::sync::Arc;
use std::time::Duration;

use leasehold_lock::doctor::{Level, examine};
use leasehold_lock::{Redis, Redlock, StoreOptions};
use leasehold_testkit::lock_suite::{Store, keep_one_of_each_kind};
use leasehold_testkit::servers::{Authority, RedisCluster, RedisServer};

use crate::support::{levels, trusting};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_keeps_the_promises_of_a_lease() {
    let authority = Authority::new();
    let server = RedisServer::options().tls(&authority.certificate()).start();
    let address = format!("{}?{}", server.tls_address(), trusting(&authority.ca_file()));
    let redis = Redis::open(&format!("rediss://{address}")).unwrap();
    let store: Store = Arc::new(redis.with_claim_time(Duration::from_secs(1)));
    keep_one_of_each_kind(&store).await;
    // The other scheme means the same.
    for scheme in ["rediss", "valkeys"] {
        let report = examine(&format!("{scheme}://{address}"), &StoreOptions::default()).await.unwrap();
        assert_eq!(levels(&report, "encryption"), [Level::Ok], "{report:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_keeps_the_promises_of_a_lease() {
    let authority = Authority::new();
    let cluster = RedisCluster::options().tls(&authority.certificate()).start();
    let nodes = cluster.tls_addresses().join(",");
    let url = format!("rediss-cluster://{nodes}?{}", trusting(&authority.ca_file()));
    let redis = Redis::open(&url).unwrap().with_claim_time(Duration::from_secs(1));
    let store: Store = Arc::new(redis);
    keep_one_of_each_kind(&store).await;
    let report = examine(&url, &StoreOptions::default()).await.unwrap();
    assert_eq!(levels(&report, "encryption"), [Level::Ok; 3], "one for each master: {report:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn independent_servers_keep_the_promises_of_a_fence() {
    let authority = Authority::new();
    let servers = RedisServer::options().tls(&authority.certificate()).start_independent(3);
    let addresses: Vec<String> = servers.iter().map(RedisServer::tls_address).collect();
    let url = format!("redlocks://{}?{}", addresses.join(","), trusting(&authority.ca_file()));
    let store: Store = Arc::new(Redlock::open(&url).unwrap());
    keep_one_of_each_kind(&store).await;
    let report = examine(&url, &StoreOptions::default()).await.unwrap();
    assert_eq!(levels(&report, "encryption"), [Level::Ok; 3], "{report:#?}");
}
