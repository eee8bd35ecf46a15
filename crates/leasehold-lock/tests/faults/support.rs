//! What the tests of faults share.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_lock::{Acquired, Epochs, Fence, Guard, LockError, Locker, Redis, Redlock};
use leasehold_testkit::servers::{Postgres, RedisServer};

/// How long anything may take that is not a matter of waiting.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// A lease that no test waits for: what is free before its end was given back.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Locks on one server with epochs from PostgreSQL.
pub(crate) fn fenced(server: &RedisServer, postgres: &Postgres) -> Locker {
    let redis = Redis::open(&server.url()).unwrap();
    Locker::new(redis.with_epochs(Epochs::open(&postgres.url()).unwrap()))
}

/// A set of independent servers.
pub(crate) fn redlock(servers: &[RedisServer]) -> Redlock {
    let addresses: Vec<String> = servers.iter().map(RedisServer::address).collect();
    Redlock::open(&format!("redlock://{}", addresses.join(","))).unwrap()
}

/// The guard of a lock that must be had.
#[track_caller]
pub(crate) fn granted(acquired: Result<Acquired, LockError>) -> Guard {
    match acquired {
        Ok(Acquired::Granted(guard)) => guard,
        other => panic!("expected a grant, not {other:?}"),
    }
}

/// Acquires, notes the fence, and releases.
pub(crate) async fn take(locker: &Locker, name: &str) -> Fence {
    let guard = granted(locker.acquire(name).wait(PATIENCE).await);
    let fence = guard.fence().expect("a fence");
    guard.release().await.unwrap();
    fence
}

/// Waits for something to become true.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    until_within(PATIENCE, what, condition).await;
}

pub(crate) async fn until_within(time_max: Duration, what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + time_max;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {time_max:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs something that must end.
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

/// The owner of a lock on one server; a fence may stand behind it there.
pub(crate) fn owner_on(server: &RedisServer, name: &str) -> Option<String> {
    let value: Option<String> = server.command(&["GET", &format!("lock:{name}")]);
    value.map(|value| value.split('#').next().unwrap_or_default().to_owned())
}

/// How many stand in line on one server, for whatever name.
pub(crate) fn in_line(server: &RedisServer) -> u32 {
    let queues: Vec<String> = server.command(&["KEYS", "leasehold:queue:*"]);
    queues.iter().map(|queue| server.command::<u32>(&["ZCARD", queue])).sum()
}

/// How many leases were lost for this reason, as the locker's meters have it.
pub(crate) fn lost(locker: &Locker, reason: &str) -> u32 {
    let mut registry = prometheus_client::registry::Registry::default();
    locker.meters().register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let begins = format!("leasehold_lock_lost_total{{reason=\"{reason}\"}} ");
    let count = text.lines().find_map(|line| line.strip_prefix(&begins));
    count.map_or(0, |count| count.parse().unwrap())
}

/// One grant: when it was asked for, when it was answered, and the fence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Issued {
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
    pub(crate) fence: Fence,
}

/// All grants of a name, by any number of tasks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Vec<Issued>>>);

impl Ledger {
    pub(crate) fn note(&self, asked: Instant, fence: Fence) {
        self.0.lock().unwrap().push(Issued { asked, answered: Instant::now(), fence });
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn highest(&self) -> Option<Fence> {
        self.0.lock().unwrap().iter().map(|issued| issued.fence).max()
    }

    /// No fence twice, and none that is lower than one that was given out before it was asked for.
    pub(crate) fn check(&self) {
        let mut issued = self.0.lock().unwrap().clone();
        issued.sort_by_key(|issued| issued.fence);
        for pair in issued.windows(2) {
            assert_ne!(pair[0].fence, pair[1].fence, "issued twice: {pair:?}");
        }
        // From the highest fence down: nothing below may have been asked for after its answer.
        let mut first_answer_above: Option<Issued> = None;
        for one in issued.iter().rev() {
            if let Some(above) = first_answer_above {
                assert!(one.asked < above.answered, "went back: {above:?}, then {one:?}");
            }
            if first_answer_above.is_none_or(|above| one.answered < above.answered) {
                first_answer_above = Some(*one);
            }
        }
    }
}

#[test]
#[should_panic(expected = "went back")]
fn ledger_finds_a_fence_that_went_back() {
    let ledger = Ledger::default();
    for fence in [1, 3, 2] {
        ledger.note(Instant::now(), Fence(fence));
    }
    ledger.check();
}

#[test]
#[should_panic(expected = "issued twice")]
fn ledger_finds_a_fence_that_was_issued_twice() {
    let ledger = Ledger::default();
    for fence in [1, 2, 2] {
        ledger.note(Instant::now(), Fence(fence));
    }
    ledger.check();
}
