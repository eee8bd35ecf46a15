//! A cluster's client that had nothing to say because nobody asked.

use std::time::Duration;

use leasehold_lock::link::{Link, Lua};
use leasehold_testkit::servers::{Direction, FaultProxy, RedisCluster};

use crate::support::{in_time, until};

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
        link.gave_up();
    };
    give_up().await;
    assert!(link.is_connected(), "left for one answer");
    until("it is left", async || {
        give_up().await;
        !link.is_connected()
    })
    .await;
}
