//! The ledger is restarted, and connections to it are cut, late, silent or refused.

use std::time::{Duration, Instant};

use leasehold_testkit::Operation;
use leasehold_testkit::servers::{Direction, FaultProxy, Postgres, RedisCluster};

use crate::replicas::{Replicas, gated};
use crate::round::Round;

/// How late the ledger's answers are.
const LATE: Duration = Duration::from_millis(200);
/// How many requests must be done all the same, and how soon. Connections were cut just before.
const LATE_MIN: usize = 5;
const LATE_MAX: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_is_restarted_and_killed() {
    let (mut ledger, redis) = (Postgres::start(), RedisCluster::start());
    let replicas = Replicas::start(|_| gated(&ledger.url(), &redis.url()));
    for name in ["ledger-stopped", "ledger-killed"] {
        let round = Round::begin(name, &replicas).await;
        let before = round.moment();
        match name {
            "ledger-stopped" => ledger.stop(),
            _ => ledger.kill9(),
        }
        assert!(!ledger.is_running());
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        ledger.restart();
        let over = Instant::now();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(round.turned_away_since(before) > 0, "nobody noticed that the ledger was away");
        round.judge(over, &replicas, &ledger).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_the_ledger_are_cut_late_silent_and_refused() {
    let (ledger, redis) = (Postgres::start(), RedisCluster::start());
    let mut proxies = Vec::new();
    for _ in 0..3 {
        proxies.push(FaultProxy::start(ledger.address()).await);
    }
    let url = |proxy: &FaultProxy| format!("postgres://postgres@{}/postgres", proxy.address());
    let replicas = Replicas::start(|number| gated(&url(&proxies[number]), &redis.url()));
    let round = Round::begin("ledger-proxy", &replicas).await;

    let mut cut = 0;
    for _ in 0..3 {
        round.moment();
        for proxy in &proxies {
            cut += proxy.cut().await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(cut >= 9, "{cut} connections were cut");

    let before = round.moment();
    for proxy in &proxies {
        proxy.delay(Direction::Answers, LATE);
    }
    let is_late = |operation: &Operation| operation.acknowledged() && takes(operation) >= LATE;
    let begun = Instant::now();
    while round.history.count_since(before, is_late) < LATE_MIN {
        assert!(begun.elapsed() < LATE_MAX, "nothing is done while the ledger's answers are late");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("{LATE_MIN} requests were done within {:?} although answers were late", begun.elapsed());

    // One server's commits take effect and it never hears of them, another's connections break and none is made.
    round.moment();
    proxies[0].swallow(Direction::Answers);
    proxies[1].refuse().await;
    let refused = proxies[1].cut().await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let swallowed = proxies[0].traffic().swallowed_answer_bytes;
    for proxy in &proxies {
        proxy.pass().await;
    }
    assert!(refused > 0 && swallowed > 0, "{refused} connections refused, {swallowed} bytes lost");
    round.judge(Instant::now(), &replicas, &ledger).await;
}

/// How long somebody waited for the answer.
fn takes(operation: &Operation) -> Duration {
    operation.ended.unwrap_or_default().saturating_sub(operation.started)
}
