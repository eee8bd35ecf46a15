//! The ledger is restarted, and connections to it are cut, late, silent or refused.

use std::time::{Duration, Instant};

use leasehold_api::{CreateEvent, CreateHold, ItemSpec, PoolSpec};
use leasehold_client::Request;
use leasehold_testkit::servers::{Direction, FaultProxy, Postgres, RedisCluster};
use leasehold_testkit::{Desk, Granted, History, Operation, RecordingClient, check, read_back};

use crate::replicas::{Replicas, gated, launch};
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

/// It takes connections and says nothing: whoever asks is answered in time all the same.
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
    assert!(round.turned_away_since(before) > unknown, "nobody was turned away");
    ledger.resume();
    let over = Instant::now();
    let history = round.history.clone();
    round.judge(over, &replicas, &ledger).await;
    let longest = history.operations()[earlier..].iter().map(takes).max().unwrap_or_default();
    println!("{unknown} requests were told that nobody knows; the longest waited {longest:?}");
    assert!(longest < STILL, "somebody waited {longest:?}, until it was over");
}

/// What was sent to a ledger that stands still may take effect when it goes on. Nobody guesses; asking again with the key tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_whose_commit_times_out_is_unknown_until_it_is_asked_again() {
    let (mut ledger, history) = (Postgres::start(), History::new());
    let server = launch(&ledger.url()).start();
    let mut desk = Desk::new(server.address(), 0, &history);
    let pools = vec![PoolSpec { id: "floor".to_owned(), capacity: 3 }];
    desk.create_event(&CreateEvent { id: "gala".to_owned(), pools, ..CreateEvent::default() }).await;
    let body = CreateHold { items: vec![ItemSpec::pool("floor", 2)], ..CreateHold::default() };
    let mut client = RecordingClient::new(server.address(), 1, &history).with_timeout(STILL * 2);
    let mut hold = async || {
        let request = Request::post("/v1/events/gala/holds", &body).idempotency_key("once");
        client.send(request).await.answered("a hold")
    };
    ledger.pause();
    let asked = Instant::now();
    let answer = hold().await;
    println!("answered after {:?}: {answer:?}", asked.elapsed());
    assert_eq!((answer.status, answer.code().as_deref()), (503, Some("outcome-unknown")));
    assert!(answer.header("retry-after").is_some() && asked.elapsed() < STILL);
    ledger.resume();
    let granted = loop {
        match Granted::of(&hold().await) {
            Some(granted) => break granted,
            None => assert!(asked.elapsed() < STILL * 2, "it is never told what became of it"),
        }
    };
    let again = Granted::of(&hold().await).expect("the same once more");
    assert_eq!(again.id, granted.id);
    let view = desk.show_event("gala").await;
    assert_eq!((view.pools[0].held, view.pools[0].free), (2, 1), "it took effect once");
    read_back(server.address(), &history).await;
    check(&history).assert_clean();
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
