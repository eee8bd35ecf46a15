//! The gate's Redis Cluster fails in every way: it forgets, loses writes, moves its slots, and is gone.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use leasehold_testkit::servers::{ClusterNode, Postgres, RedisCluster};

use crate::replicas::{Replicas, USED_AGAIN_MAX, gated};
use crate::round::Round;

/// How long Redis is gone.
const GONE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_cluster_that_fails_in_every_way_costs_no_sale() {
    let ledger = Postgres::start();
    let mut cluster = RedisCluster::start();
    let gate = cluster.url();
    let replicas = Replicas::start(|_| gated(&ledger.url(), &gate));

    let round = Round::begin("gate-calm", &replicas).await;
    round.moment();
    let over = Instant::now();
    wait_until_used(&cluster, &replicas);
    round.judge(over, &replicas, &ledger).await;

    let earlier = keys(&cluster, "");
    let round = Round::begin("gate-failover", &replicas).await;
    let mut over = Instant::now();
    for what in [":seats", ":pools"] {
        over = fail_over_with_lost_writes(&mut cluster, &round, what, &earlier);
    }
    wait_until_used(&cluster, &replicas);
    round.judge(over, &replicas, &ledger).await;

    let earlier = keys(&cluster, "");
    let round = Round::begin("gate-flushed", &replicas).await;
    let rebuilt = replicas.total("leasehold_gate_rebuilt_total");
    flush(&cluster, &round, &earlier);
    let over = Instant::now();
    wait_until_used(&cluster, &replicas);
    assert!(replicas.total("leasehold_gate_rebuilt_total") > rebuilt, "nothing had to be told anew");
    round.judge(over, &replicas, &ledger).await;

    let earlier = keys(&cluster, "");
    let round = Round::begin("gate-moved", &replicas).await;
    move_slots(&cluster, &round, &earlier);
    let over = Instant::now();
    wait_until_used(&cluster, &replicas);
    round.judge(over, &replicas, &ledger).await;

    let round = Round::begin("gate-gone", &replicas).await;
    let over = stop_and_restart(&mut cluster, &round).await;
    wait_until_used(&cluster, &replicas);
    round.judge(over, &replicas, &ledger).await;
}

/// The master of what the buyers want, and of what the judgement asks for, is lost with all that was written to it in the last
/// moment. Returns when another one had taken over.
fn fail_over_with_lost_writes(
    cluster: &mut RedisCluster,
    round: &Round,
    what: &str,
    earlier: &[String],
) -> Instant {
    let key = new_key(cluster, what, earlier);
    let mark = beside(&key, "mark");
    let before = round.moment();
    let cut = cluster.begin_lost_writes(&key);
    let (lost, calls) = (cut.master, calls(cluster, cut.master));
    let () = cluster.server(lost).command(&["SET", &mark, "here"]);
    std::thread::sleep(Duration::from_millis(500));
    assert!(self::calls(cluster, lost) > calls, "the gate wrote nothing that could be lost");
    let promoted = cluster.fail_over(cut);
    let over = Instant::now();
    let meanwhile = round.done_since(before);
    let found: Option<String> = cluster.server(promoted).command(&["GET", &mark]);
    assert_eq!(found, None, "the write was not lost");
    assert_ne!(promoted, lost);
    cluster.restart(lost);
    println!("gate-failover of {key}: {meanwhile} requests done meanwhile");
    assert!(meanwhile > 50, "the servers went on: {meanwhile} requests done");
    over
}

/// Redis forgets everything at once.
fn flush(cluster: &RedisCluster, round: &Round, earlier: &[String]) {
    let key = new_key(cluster, ":seats", earlier);
    let (mark, master) = (beside(&key, "mark"), cluster.master_of(&key));
    let () = cluster.server(master).command(&["SET", &mark, "here"]);
    let size = || -> u64 { cluster.masters().iter().map(|node| size_of(cluster, *node)).sum() };
    round.moment();
    let before = size();
    for node in cluster.masters() {
        let () = cluster.server(node).command(&["FLUSHALL"]);
    }
    let found: Option<String> = cluster.server(master).command(&["GET", &mark]);
    let after = size();
    println!("gate-flushed: {before} keys before, {after} just after");
    assert!(after < before && found.is_none(), "{before} keys, then {after}, {found:?}");
}

/// The slots of what the buyers want go to another master key by key, and on to another.
fn move_slots(cluster: &RedisCluster, round: &Round, earlier: &[String]) {
    let slots = [":seats", ":pools"].map(|ending| cluster.slot_of(&new_key(cluster, ending, earlier)));
    let (mut moved, before) = (0, redirections(cluster));
    for slot in slots.into_iter().chain(slots) {
        let from = cluster.master_of_slot(slot);
        let to = cluster.masters().into_iter().find(|node| *node != from).expect("three masters");
        round.moment();
        let mut moving = cluster.begin_slot_move(slot, to);
        std::thread::sleep(Duration::from_millis(200));
        cluster.move_some_keys(&mut moving, 1);
        std::thread::sleep(Duration::from_millis(200));
        moved += cluster.finish_slot_move(moving);
        assert_eq!(cluster.master_of_slot(slot), to);
    }
    let redirected = redirections(cluster) - before;
    println!("gate-moved: {moved} keys, {redirected} redirections");
    assert!(moved >= 4 && redirected > 0, "{moved} keys were moved, and {redirected} asks sent on");
}

/// How often anybody was sent to another node.
fn redirections(cluster: &RedisCluster) -> u64 {
    let count = |node: ClusterNode, kind: &str| -> Option<u64> {
        let said = cluster.server(node).info("errorstats", &format!("errorstat_{kind}"));
        said.strip_prefix("count=")?.parse().ok()
    };
    let kinds = ["MOVED", "ASK"];
    cluster.nodes().flat_map(|node| kinds.map(|kind| count(node, kind))).flatten().sum()
}

/// Redis is gone for a while, and comes back with what it knew then. Returns when all nodes were back.
async fn stop_and_restart(cluster: &mut RedisCluster, round: &Round) -> Instant {
    let before = round.moment();
    for node in cluster.nodes() {
        cluster.server_mut(node).stop();
    }
    for address in cluster.addresses() {
        assert!(TcpStream::connect(&address).is_err(), "{address} still takes connections");
    }
    let gone = round.moment();
    tokio::time::sleep(GONE).await;
    let (at_first, meanwhile) = (round.done_since(before), round.done_since(gone));
    for node in cluster.nodes() {
        cluster.server_mut(node).restart();
    }
    let over = Instant::now();
    cluster.wait_until_settled();
    println!("gate-gone: {at_first} requests done since the stop began, {meanwhile} while Redis was gone");
    assert!(meanwhile > 50, "the servers went on without it: {meanwhile} requests done");
    over
}

/// The keys of the gate that end so.
fn keys(cluster: &RedisCluster, ending: &str) -> Vec<String> {
    let keys = |node| -> Vec<String> { cluster.server(node).command(&["KEYS", &format!("*{ending}")]) };
    cluster.masters().into_iter().flat_map(keys).collect()
}

/// A key that ends so and was not there earlier: it belongs to what is for sale now.
fn new_key(cluster: &RedisCluster, ending: &str, earlier: &[String]) -> String {
    let begun = Instant::now();
    loop {
        if let Some(key) = keys(cluster, ending).into_iter().find(|key| !earlier.contains(key)) {
            return key;
        }
        assert!(begun.elapsed() < USED_AGAIN_MAX, "the gate has no new key that ends with {ending}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Another key of the same slot.
fn beside(key: &str, name: &str) -> String {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or(key, |(tag, _)| tag);
    format!("{{{tag}}}:{name}")
}

/// Waits until the gate is called again, and every server says that it asks it.
fn wait_until_used(cluster: &RedisCluster, replicas: &Replicas) {
    let all = || cluster.masters().into_iter().map(|node| calls(cluster, node)).sum::<u64>();
    let (before, begun) = (all(), Instant::now());
    while all() < before + 20 {
        assert!(begun.elapsed() < USED_AGAIN_MAX, "the gate is not called: {} times", all() - before);
        std::thread::sleep(Duration::from_millis(20));
    }
    replicas.wait_until_gated(USED_AGAIN_MAX.saturating_sub(begun.elapsed()));
}

/// How often the gate's scripts have run on a node since its start.
fn calls(cluster: &RedisCluster, node: ClusterNode) -> u64 {
    let calls = |name: &str| -> Option<u64> {
        let said = cluster.server(node).info("commandstats", name);
        said.strip_prefix("calls=")?.split(',').next()?.parse().ok()
    };
    ["cmdstat_eval", "cmdstat_evalsha", "cmdstat_fcall"].into_iter().filter_map(calls).sum()
}

fn size_of(cluster: &RedisCluster, node: ClusterNode) -> u64 {
    cluster.server(node).command(&["DBSIZE"])
}
