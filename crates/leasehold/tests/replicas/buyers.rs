//! Connections between the buyers and the servers are cut, late, silent and refused.

use std::time::{Duration, Instant};

use leasehold_testkit::servers::{Direction, FaultProxy, Postgres, RedisCluster, Traffic};

use crate::replicas::{Replicas, gated};
use crate::round::{LITTLE_PATIENCE, Round};

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_buyers_are_cut_late_silent_and_refused() {
    let (ledger, redis) = (Postgres::start(), RedisCluster::start());
    let replicas = Replicas::start(|_| gated(&ledger.url(), &redis.url()));
    let mut proxies = Vec::new();
    for address in replicas.addresses() {
        proxies.push(FaultProxy::start(address).await);
    }
    let doors = proxies.iter().map(FaultProxy::address).collect();
    let round = Round::begin_hurried_at("buyers-proxy", doors).await;

    for _ in 0..5 {
        round.moment();
        let mut cut = 0;
        for proxy in &proxies {
            cut += proxy.cut().await;
        }
        assert!(cut > 0, "nobody was connected");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    // Everything is done, and nobody hears of it in time; nobody hears of it at all; nothing arrives.
    let late = |proxy: &FaultProxy| proxy.delay(Direction::Answers, LITTLE_PATIENCE * 2);
    let dumb = |proxy: &FaultProxy| proxy.swallow(Direction::Answers);
    let deaf = |proxy: &FaultProxy| proxy.swallow(Direction::Requests);
    for misbehave in [&late as &dyn Fn(&FaultProxy), &dumb, &deaf] {
        round.moment();
        let given_up = round.history.given_up();
        proxies.iter().for_each(misbehave);
        tokio::time::sleep(LITTLE_PATIENCE * 2).await;
        round.more_are_given_up_than(given_up, "everybody was answered").await;
        for proxy in &proxies {
            proxy.pass().await;
        }
        let passed = round.moment();
        round.something_is_done_since(passed, "nobody came back").await;
    }
    let swallowed =
        |count: fn(Traffic) -> u64| proxies.iter().map(|proxy| count(proxy.traffic())).sum::<u64>();
    assert!(swallowed(|traffic| traffic.swallowed_answer_bytes) > 0, "every answer arrived");
    assert!(swallowed(|traffic| traffic.swallowed_request_bytes) > 0, "every request arrived");

    // Two of three cannot be reached: everybody goes to the third.
    let before = round.moment();
    for proxy in &proxies[1..] {
        proxy.refuse().await;
        proxy.cut().await;
    }
    round.something_is_done_since(before, "nobody found the server that is left").await;
    for proxy in &proxies {
        proxy.pass().await;
    }
    round.judge(Instant::now(), &replicas, &ledger).await;
}
