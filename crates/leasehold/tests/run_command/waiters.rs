//! Those who wait in line and are gone when their turn comes.

use std::time::{Duration, Instant};

use leasehold_lock::{LockName, Locker, Redis};
use leasehold_testkit::servers::{RedisCluster, RedisServer};
use rustix::process::Signal;

use crate::stage::{Run, Stage, Store, TIME_MAX};

const GONE: usize = 5;
/// How long a waiter has for claiming the lock when its turn has come.
const CLAIM: Duration = Duration::from_millis(250);
/// Whoever has not asked for so long is passed over in any case; a round that takes that long shows nothing.
const COUNTS_AS_ALIVE: Duration = Duration::from_secs(1);
const ROUNDS: usize = 4;

/// The store under test.
struct Line {
    url: String,
    stage: Stage,
    name: LockName,
    /// How many processes the server could tell that it is their turn.
    listening: Box<dyn Fn() -> usize>,
}

/// Lets five processes wait in line before one of ours, does something to them, releases the lock at once, and says how
/// long ours waited after that. `None` when the machine was too busy for it to show anything.
async fn cost_of(line: &Line, signal: Signal) -> Option<Duration> {
    let Line { url, stage, name, listening } = line;
    let (locker, long) = (Locker::new(Redis::open(url).unwrap()), Duration::from_secs(60));
    let first = locker.acquire(name.clone()).ttl(long).await.unwrap().granted().expect("free");
    let mut waiting = Vec::new();
    for ahead in 0..GONE {
        let options = ["--lock", name.as_str(), "--wait", "60s", "--in-order"];
        waiting.push(stage.start(&options, "true"));
        wait_until(&locker, name, "in line", |in_line| (in_line, listening()) == (ahead + 1, ahead + 1))
            .await;
    }
    let ours = tokio::spawn(locker.acquire(name.clone()).ttl(long).wait(long).in_order().into_future());
    wait_until(&locker, name, "all in line", |in_line| (in_line, listening()) == (GONE + 1, GONE + 1)).await;
    // Everybody has asked once more since it listens.
    tokio::time::sleep(2 * CLAIM).await;
    let signalled = Instant::now();
    for run in &waiting {
        run.signal(signal);
    }
    if signal == Signal::KILL {
        for run in &mut waiting {
            run.wait();
        }
        wait_until(&locker, name, "the server has seen them go", |_| listening() == 1).await;
    }
    let began = Instant::now();
    first.release().await.unwrap();
    let next = ours.await.unwrap().unwrap().granted().expect("its turn");
    let cost = began.elapsed();
    let is_telling = began - signalled < COUNTS_AS_ALIVE / 2;
    end(waiting, next).await;
    is_telling.then_some(cost)
}

async fn end(waiting: Vec<Run>, next: leasehold_lock::Guard) {
    drop(waiting);
    next.release().await.unwrap();
    // Those who were stopped are forgotten by then.
    tokio::time::sleep(COUNTS_AS_ALIVE + CLAIM).await;
}

async fn wait_until(locker: &Locker, name: &LockName, what: &str, condition: impl Fn(usize) -> bool) {
    let until = Instant::now() + TIME_MAX;
    loop {
        let lease = locker.inspect(name).await.unwrap().expect("held");
        if condition(lease.waiters.unwrap_or_default() as usize) {
            return;
        }
        assert!(Instant::now() < until, "in vain: {what}: {lease:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Tries until it costs what it should: others share the machine.
async fn rounds(line: &Line, signal: Signal, is_right: impl Fn(Duration) -> bool) -> Duration {
    let mut costs = Vec::new();
    for _ in 0..ROUNDS {
        match cost_of(line, signal).await {
            Some(cost) if is_right(cost) => return cost,
            cost => costs.push(cost),
        }
    }
    panic!("with {signal:?}, {GONE} cost {costs:?}");
}

/// The killed cost nothing; those that only stand still, which nobody can see, cost their time.
async fn cost_nothing_when_killed(line: &Line) {
    let killed = rounds(line, Signal::KILL, |cost| cost < CLAIM).await;
    let stopped = rounds(line, Signal::STOP, |cost| cost >= CLAIM).await;
    println!("{GONE} that were killed cost {killed:?}, {GONE} that stand still {stopped:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_killed_a_moment_ago_cost_nothing_on_redis() {
    let server = RedisServer::start();
    let url = server.url();
    let listening = move || {
        let channels: Vec<String> = server.command(&["PUBSUB", "CHANNELS", "leasehold:turns:*"]);
        channels.len()
    };
    cost_nothing_when_killed(&Line::on(&url, listening)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_killed_a_moment_ago_cost_nothing_on_a_cluster() {
    let cluster = RedisCluster::start();
    let url = cluster.url();
    let listening = move || {
        let master = cluster.server(cluster.master_of("lock:job"));
        let channels: Vec<String> = master.command(&["PUBSUB", "SHARDCHANNELS", "leasehold:turns:*"]);
        channels.len()
    };
    cost_nothing_when_killed(&Line::on(&url, listening)).await;
}

impl Line {
    fn on(url: &str, listening: impl Fn() -> usize + 'static) -> Self {
        let stage = Stage::new(Store::at(url));
        let name = LockName::parse("job").unwrap();
        Self { url: url.to_owned(), stage, name, listening: Box::new(listening) }
    }
}
