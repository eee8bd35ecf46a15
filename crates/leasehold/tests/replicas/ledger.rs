//! The ledger is restarted, and connections to it are cut, late, silent or refused.

use std::time::{Duration, Instant};

use leasehold_testkit::Operation;
use leasehold_testkit::servers::{Direction, FaultProxy, Postgres, RedisCluster};

use crate::replicas::{Replicas, gated};
use crate::round::Round;

/// Longer than a call may take (8 s), its outcome be looked for afterwards (6 s), and a connection take (3 s), all together,
/// with some time for a busy machine.
const STILL: Duration = Duration::from_secs(28);
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

/// It takes connections and says nothing. Whoever asked is told within a time that nobody knows what became of it.
#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_stands_still_for_longer_than_anybody_waits() {
    let (mut ledger, redis) = (Postgres::start(), RedisCluster::start());
    let replicas = Replicas::start(|_| gated(&ledger.url(), &redis.url()));
    let round = Round::begin_patient("ledger-still", &replicas).await;
    let before = round.moment();
    let earlier = before.saturating_sub(64);
    ledger.pause();
    tokio::time::sleep(STILL).await;
    let unknown = round.unknown_since(earlier);
    assert!(unknown > 0, "nobody was told that nobody knows");
    assert!(round.turned_away_since(before) > unknown, "nobody was turned away");
    ledger.resume();
    let over = Instant::now();
    let history = round.history.clone();
    round.judge(over, &replicas, &ledger).await;
    let longest = history.operations()[earlier..].iter().map(takes).max().unwrap_or_default();
    println!("{unknown} requests were told that nobody knows; the longest waited {longest:?}");
    assert!(longest < STILL, "somebody waited {longest:?}, until it was over");
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
