//! Connections to the gate are cut, late, silent and refused: to one Redis, and to every node of a cluster.

use std::time::{Duration, Instant};

use leasehold_testkit::servers::{Direction, FaultProxy, Postgres, RedisCluster, RedisServer, Traffic};

use crate::replicas::{Replicas, USED_AGAIN_MAX, gated};
use crate::round::Round;

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_redis_are_cut_late_silent_and_refused() {
    let redis = RedisServer::start();
    let proxies = Proxies(vec![FaultProxy::start(redis.address()).await]);
    proxies.misbehave("gate-proxy", "redis").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_all_nodes_of_a_cluster_are_cut_late_silent_and_refused() {
    let cluster = RedisCluster::start();
    let proxies = Proxies(cluster.put_behind_proxies().await);
    proxies.misbehave("gate-proxies", "redis-cluster").await;
}

/// All that stands between the servers and the gate.
struct Proxies(Vec<FaultProxy>);

impl Proxies {
    /// A sale through these proxies, while they do everything that proxies can do.
    async fn misbehave(&self, name: &str, scheme: &str) {
        let ledger = Postgres::start();
        let addresses: Vec<String> = self.0.iter().map(FaultProxy::address).collect();
        let gate = format!("{scheme}://{}", addresses.join(","));
        let replicas = Replicas::start(|_| gated(&ledger.url(), &gate));
        let round = Round::begin(name, &replicas).await;

        for _ in 0..3 {
            round.moment();
            let cut = self.cut().await;
            // Half of a cluster's nodes copy from the others through the proxies, too.
            assert!(cut > self.0.len() / 2, "{cut} connections were cut, none of them a server's");
            tokio::time::sleep(Duration::from_millis(300)).await;
        }

        let before = round.moment();
        self.0.iter().for_each(|proxy| proxy.delay(Direction::Answers, Duration::from_millis(1_500)));
        tokio::time::sleep(Duration::from_millis(2_000)).await;
        assert!(round.done_since(before) > 0, "the servers waited for a late gate");
        assert!(replicas.are_alone(), "nobody noticed that the gate was late");
        self.pass_again(&replicas).await;

        // The gate does what it is told and nobody hears of it; then it hears nothing; then it cannot be reached.
        for direction in [Direction::Answers, Direction::Requests] {
            let before = round.moment();
            self.0.iter().for_each(|proxy| proxy.swallow(direction));
            tokio::time::sleep(Duration::from_millis(2_000)).await;
            assert!(round.done_since(before) > 0, "the servers waited for a silent gate");
            assert!(replicas.are_alone(), "nobody noticed that the gate was silent");
            self.pass_again(&replicas).await;
        }
        let swallowed =
            |count: fn(Traffic) -> u64| self.0.iter().map(|proxy| count(proxy.traffic())).sum::<u64>();
        assert!(swallowed(|traffic| traffic.swallowed_answer_bytes) > 0, "every answer arrived");
        assert!(swallowed(|traffic| traffic.swallowed_request_bytes) > 0, "every request arrived");

        let before = round.moment();
        for proxy in &self.0 {
            proxy.refuse().await;
        }
        let refused = self.cut().await;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert!(refused > 0, "nothing was connected");
        assert!(round.done_since(before) > 0, "the servers waited for a gate that is gone");
        assert!(replicas.are_alone(), "nobody noticed that the gate was gone");
        let over = self.pass_again(&replicas).await;
        round.judge(over, &replicas, &ledger).await;
    }

    async fn cut(&self) -> usize {
        let mut cut = 0;
        for proxy in &self.0 {
            cut += proxy.cut().await;
        }
        cut
    }

    /// Ends the fault, and waits until every server has heard from all parts of the gate again. Returns when it was over.
    async fn pass_again(&self, replicas: &Replicas) -> Instant {
        for proxy in &self.0 {
            proxy.pass().await;
        }
        let over = Instant::now();
        replicas.wait_until_gated(USED_AGAIN_MAX);
        over
    }
}
