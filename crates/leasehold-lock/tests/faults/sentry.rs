//! What the log says of servers that may lose locks: those that evict keys, and those whose clock was set.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use leasehold_lock::{Locker, Redis};
use leasehold_testkit::servers::{ClockShift, RedisCluster, RedisSentinel, RedisServer, independent};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::support::{granted, redlock, until};

const EVICTS: &str = "evicts";
const CLOCK: &str = "wall clock";

/// The warnings of one thread, on which the runtime of a test and all its tasks run.
#[derive(Debug, Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Hears warnings until the guard is dropped.
    fn hear() -> (Self, DefaultGuard) {
        let warnings = Self::default();
        let heard = tracing::subscriber::set_default(warnings.clone());
        (warnings, heard)
    }

    fn of(&self, topic: &str) -> Vec<String> {
        let warnings = self.0.lock().unwrap();
        warnings.iter().filter(|warning| warning.contains(topic)).cloned().collect()
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

/// How often a server was looked at. Tests ask for the time by no other way.
fn looks(server: &RedisServer) -> u32 {
    let said = server.info("commandstats", "cmdstat_time");
    said.split([',', '=']).nth(1).map_or(0, |calls| calls.parse().unwrap())
}

async fn ask(locker: &Locker) {
    for name in ["one", "two", "three"] {
        let _ = locker.acquire(name).no_wait().await;
    }
}

/// Uses stores until each of these was looked at twice more. The first of the two looks is over by then.
async fn until_looked_at(lockers: &[Locker], servers: &[&RedisServer]) {
    let before: Vec<u32> = servers.iter().map(|server| looks(server)).collect();
    until("the servers are looked at", async || {
        for locker in lockers {
            ask(locker).await;
        }
        servers.iter().zip(&before).all(|(server, before)| looks(server) >= before + 2)
    })
    .await;
}

/// Uses a store until there are so many warnings, and then for two more looks, by which there are no more.
async fn until_warned(
    count: usize,
    (warnings, topic): (&Warnings, &str),
    lockers: &[Locker],
    servers: &[&RedisServer],
) -> String {
    until(&format!("{count} warnings of `{topic}`"), async || {
        for locker in lockers {
            ask(locker).await;
        }
        warnings.of(topic).len() >= count
    })
    .await;
    until_looked_at(lockers, servers).await;
    let mut said = warnings.of(topic);
    assert_eq!(said.len(), count, "once each: {said:#?}");
    said.pop().expect("one at least")
}

fn evict_by(server: &RedisServer, policy: &str) {
    let () = server.command(&["CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", policy]);
}

/// Pitfall 13: whoever connects to a server that may evict locks is warned, once for each policy.
#[tokio::test]
async fn pitfall_13_server_that_may_evict_locks_is_warned_of_once() {
    let (warnings, _heard) = Warnings::hear();
    let server = RedisServer::options().password("hunter2").start();
    let lockers = [Locker::new(Redis::open(&server.url()).unwrap())];
    let hang_up = || -> u32 { server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]) };
    evict_by(&server, "noeviction");
    until_looked_at(&lockers, &[&server]).await;
    assert_eq!(warnings.of(EVICTS), [""; 0]);
    for (count, policy, counters) in
        [(1, "allkeys-lru", "everything else"), (2, "volatile-ttl", "not the counters")]
    {
        evict_by(&server, policy);
        assert!(hang_up() > 0);
        let last = until_warned(count, (&warnings, EVICTS), &lockers, &[&server]).await;
        assert!(
            last.contains(&server.address()) && last.contains(policy) && last.contains(counters),
            "{last}"
        );
        assert!(!last.contains("hunter2"), "{last}");
    }
    assert!(hang_up() > 0);
    until_warned(2, (&warnings, EVICTS), &lockers, &[&server]).await;
}

/// Without a limit nothing is evicted, whatever the policy is; and who may not ask is not told, and has the lock.
#[tokio::test]
async fn pitfall_13_look_that_finds_nothing_or_is_refused_changes_nothing() {
    let (warnings, _heard) = Warnings::hear();
    let server = RedisServer::start();
    let () = server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    until_looked_at(&[Locker::new(Redis::open(&server.url()).unwrap())], &[&server]).await;
    evict_by(&server, "allkeys-lru");
    let rights = ["ACL", "SETUSER", "ada", "on", ">secret", "~*", "&*", "+@all", "-info", "-time"];
    let () = server.command(&rights);
    let url = format!("redis://ada:secret@{}", server.address());
    let locker = Locker::new(Redis::open(&url).unwrap());
    let is_refused = |command: &str| -> bool {
        let log: Vec<Vec<String>> = server.command(&["ACL", "LOG"]);
        log.iter().flatten().any(|word| word == command)
    };
    until("both questions are refused", async || {
        granted(locker.acquire("job").await).release().await.unwrap();
        is_refused("info") && is_refused("time")
    })
    .await;
    assert_eq!(warnings.of(EVICTS), [""; 0]);
}

#[tokio::test]
async fn pitfall_13_each_server_of_a_redlock_is_looked_at() {
    let (warnings, _heard) = Warnings::hear();
    let servers = independent(3);
    evict_by(&servers[1], "allkeys-random");
    let (lockers, all) = ([Locker::new(redlock(&servers))], servers.iter().collect::<Vec<_>>());
    let said = until_warned(1, (&warnings, EVICTS), &lockers, &all).await;
    assert!(said.contains(&servers[1].address()), "{said}");
}

#[tokio::test]
async fn pitfall_13_each_master_of_a_cluster_is_looked_at() {
    let (warnings, _heard) = Warnings::hear();
    let cluster = RedisCluster::start();
    let masters: Vec<&RedisServer> = cluster.masters().into_iter().map(|node| cluster.server(node)).collect();
    evict_by(masters[1], "allkeys-lfu");
    let lockers = [Locker::new(Redis::open(&cluster.url()).unwrap())];
    let said = until_warned(1, (&warnings, EVICTS), &lockers, &masters).await;
    assert!(said.contains(&masters[1].address()), "{said}");
}

#[tokio::test]
async fn pitfall_13_master_that_sentinels_name_is_looked_at() {
    let (warnings, _heard) = Warnings::hear();
    let sentinel = RedisSentinel::start();
    let master = sentinel.master();
    evict_by(master, "volatile-lru");
    let (sentinels, name) = (sentinel.sentinel_addresses().join(","), sentinel.master_name());
    let lockers = [Locker::new(Redis::open(&format!("redis-sentinel://{sentinels}/{name}")).unwrap())];
    let said = until_warned(1, (&warnings, EVICTS), &lockers, &[master]).await;
    assert!(said.contains(&master.address()), "{said}");
}

/// Pitfall 15: a clock that is set is noticed, with the server and the size; one that is not is not.
#[tokio::test]
async fn pitfall_15_clock_that_was_set_is_warned_of_once_and_no_other() {
    let (warnings, _heard) = Warnings::hear();
    let clock = ClockShift::new();
    let servers = [RedisServer::options().clock(&clock).start(), RedisServer::start()];
    let lockers = servers.each_ref().map(|server| Locker::new(Redis::open(&server.url()).unwrap()));
    until_looked_at(&lockers, &servers.each_ref()).await;
    until_looked_at(&lockers, &servers.each_ref()).await;
    assert_eq!(warnings.of(CLOCK), [""; 0], "nobody has set a clock");
    let jumps = [(1, 60_000, "forward", 55.0), (2, 60_000 - 3_600_000, "back", 3_550.0)];
    for (count, offset_ms, way, seconds_min) in jumps {
        clock.set_ms(offset_ms);
        let last = until_warned(count, (&warnings, CLOCK), &lockers, &servers.each_ref()).await;
        assert!(last.contains(&servers[0].address()) && last.contains(way), "{last}");
        let seconds: f64 = last.split("seconds=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(seconds_min < seconds && seconds < seconds_min + 60.0, "{last}");
    }
}
