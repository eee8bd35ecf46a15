//! Servers that are killed, that stand still, and that are replaced one after the other.

use std::time::{Duration, Instant};

use leasehold_testkit::servers::{Postgres, RedisCluster};

use crate::replicas::{REPLICAS, Replicas, gated, launch};
use crate::round::{LITTLE_PATIENCE, Round, SHORT_HOLD};

/// Long enough for every hold that was granted before it to be over, and its seat to be somebody else's.
const PAUSE: Duration = SHORT_HOLD.saturating_add(Duration::from_secs(2));

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_without_a_gate_sell_everything_exactly_once() {
    let ledger = Postgres::start();
    let replicas = Replicas::start(|_| launch(&ledger.url()));
    let round = Round::begin("calm", &replicas).await;
    round.moment();
    round.judge(Instant::now(), &replicas, &ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_is_killed_and_another_stands_still_for_longer_than_holds_last() {
    let (ledger, redis) = (Postgres::start(), RedisCluster::start());
    let mut replicas = Replicas::start(|_| gated(&ledger.url(), &redis.url()));
    // Buyers of a server that stands still ask another one, and the first one goes on with the same requests later.
    let round = Round::begin_hurried("killed-and-paused", &replicas).await;

    let (before, given_up) = (round.moment(), round.history.given_up());
    replicas.servers[2].kill9();
    round.more_are_given_up_than(given_up, "nobody was waiting for the server that was killed").await;
    // By now everybody knows who was waiting for that one.
    tokio::time::sleep(LITTLE_PATIENCE).await;
    let given_up = round.history.given_up();
    replicas.servers[1].sigstop();
    tokio::time::sleep(LITTLE_PATIENCE * 2).await;
    round.more_are_given_up_than(given_up, "nobody was waiting for the server that stands still").await;
    tokio::time::sleep(PAUSE).await;
    assert_eq!(state_of(replicas.servers[1].pid()), Some('T'), "it stood still all the time");
    assert!(!replicas.servers[2].is_running());
    let meanwhile = round.done_since(before);
    replicas.servers[1].sigcont();
    let over = Instant::now();
    replicas.restart(2);

    assert!(meanwhile > 50, "the third server went on: {meanwhile} requests done");
    round.judge(over, &replicas, &ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_are_replaced_one_after_the_other() {
    let (ledger, redis) = (Postgres::start(), RedisCluster::start());
    let mut replicas = Replicas::start(|_| gated(&ledger.url(), &redis.url()));
    let round = Round::begin("rolling", &replicas).await;
    for number in 0..REPLICAS {
        round.moment();
        let process = replicas.servers[number].pid();
        let status = replicas.servers[number].sigterm_and_wait();
        assert!(status.success(), "{status}\n{}", replicas.servers[number].log());
        replicas.restart(number);
        assert_ne!(replicas.servers[number].pid(), process);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    round.judge(Instant::now(), &replicas, &ledger).await;
}

/// The kernel's letter for what a process is doing.
fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}
