//! Connections to the gate's Redis are cut, late, silent and refused.

use std::time::{Duration, Instant};

use leasehold_testkit::servers::{Direction, FaultProxy, Postgres, RedisServer};

use crate::replicas::{Replicas, gated};
use crate::round::Round;

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_redis_are_cut_late_silent_and_refused() {
    let ledger = Postgres::start();
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.address()).await;
    let gate = format!("redis://{}", proxy.address());
    let replicas = Replicas::start(|_| gated(&ledger.url(), &gate));
    let round = Round::begin("gate-proxy", &replicas).await;

    let mut cut = 0;
    for _ in 0..3 {
        round.moment();
        cut += proxy.cut().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(cut >= 3, "{cut} connections were cut");

    let before = round.moment();
    proxy.delay(Direction::Answers, Duration::from_millis(1_500));
    tokio::time::sleep(Duration::from_millis(2_000)).await;
    assert!(round.done_since(before) > 0, "the servers waited for a late gate");
    pass_again(&proxy).await;

    // The gate does what it is told and nobody hears of it; then it hears nothing; then it cannot be reached.
    for direction in [Direction::Answers, Direction::Requests] {
        let before = round.moment();
        proxy.swallow(direction);
        tokio::time::sleep(Duration::from_millis(2_000)).await;
        assert!(round.done_since(before) > 0, "the servers waited for a silent gate");
        pass_again(&proxy).await;
    }
    let traffic = proxy.traffic();
    assert!(traffic.swallowed_answer_bytes > 0 && traffic.swallowed_request_bytes > 0, "{traffic:?}");

    let before = round.moment();
    proxy.refuse().await;
    let refused = proxy.cut().await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(refused > 0, "nothing was connected");
    assert!(round.done_since(before) > 0, "the servers waited for a gate that is gone");
    pass_again(&proxy).await;
    round.judge(Instant::now(), &replicas, &ledger).await;
}

/// Ends the fault, and waits until the servers hear from the gate again.
async fn pass_again(proxy: &FaultProxy) {
    proxy.pass().await;
    let heard = proxy.traffic().answer_bytes;
    proxy.wait_for(|traffic| traffic.answer_bytes > heard + 1_000).await;
}
