//! The ledger is restarted, and connections to it are cut, late, silent or refused.

use std::time::{Duration, Instant};

use leasehold_testkit::servers::{Direction, FaultProxy, Postgres, RedisServer};

use crate::replicas::{Replicas, gated};
use crate::round::Round;

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_is_restarted_and_killed() {
    let (mut ledger, redis) = (Postgres::start(), RedisServer::start());
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
    let (ledger, redis) = (Postgres::start(), RedisServer::start());
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

    round.moment();
    for proxy in &proxies {
        proxy.delay(Direction::Answers, Duration::from_millis(200));
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;

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
