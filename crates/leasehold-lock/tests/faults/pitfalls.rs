//! The known mistakes of lock libraries, by number, each with the test that this one does not make it.
//!
//! Every test is named after its number, `pitfall_01_…`; several have more than one, and some have promises of
//! every store beside them.
//!
//! | Nr | Mistake | Where |
//! |---|---|---|
//! | 1 | validity not measured, or not given back | `redlock_set` |
//! | 2 | a second attempt trips over the first | `redlock_slow`, `pitfalls_unknown` |
//! | 3 | quorum of those reachable, one server twice | `redlock_down`, `redlock_set` |
//! | 4 | split votes | `redlock_set` |
//! | 5 | release only where the lock was had | `redlock_slow`, `redlock_down` |
//! | 6 | a late request after the release | `redlock_slow` |
//! | 7 | a member of the majority forgets | `redlock_memory` |
//! | 8 | a failed renewal releases or brings back | `redlock_down`, suite `single::renewal_never_…` |
//! | 9 | no time limit per server | `redlock_slow` |
//! | 10 | scripts forgotten or forbidden | here, `load` |
//! | 11 | owner checked in one step, acted on in another | here |
//! | 12 | failover loses the lock | `failover` |
//! | 13 | counter lost by failover, restart, eviction | here, `wiped` |
//! | 14 | fence changed by renewal, or not by a new owner | here, suite `fences` |
//! | 15 | the server's clock jumps | `clocks` |
//! | 16 | keys of one lock in different slots | `pitfalls_several`, suite `single::names_with_odd_…` |
//! | 17 | thousands of keys in one script | here |
//! | 18 | lost wake-up | `pitfalls_waiting` |
//! | 19 | queue with dead or cancelled waiters | `pitfalls_waiting`, `clocks`, suite `in_order` |
//! | 20 | renewal crosses release | `load` |
//! | 21 | no answer taken for a loss, or for a success | `pitfalls_unknown` |
//! | 22 | the holder learns of the loss too late | `pitfalls_unknown`, `paused_holder` |
//! | 23 | a clock that stops during suspend | `pitfalls_guard` |
//! | 24 | renewed for ever after the holder is gone | `pitfalls_guard` |
//! | 25 | a dropped future leaves something | here, suite `cancel` |
//! | 26 | dropping a guard in a bad place | `pitfalls_guard` |
//! | 27 | one token for several acquisitions | here, suite `single::late_owner_…` |
//! | 28 | release repeated hits the successor | `pitfalls_unknown`, suite `single::release_frees_…` |
//! | 29 | a lock that is a session's: pooled, stacked, gone with it | `tests/postgres.rs` |
//! | 30 | names that collide by their hash | `tests/postgres.rs` |
//! | 31 | several names, half of them | `pitfalls_several`, suite `several` |
//!
//! 32 is about semaphores, which do not exist here.

use std::time::{Duration, Instant};

use leasehold_lock::backend::{Backend, Held, Order, Released, Renewed};
use leasehold_lock::{Acquired, Fence, LockError, Locker, Names, Owner, Redis, Ttl};
use leasehold_testkit::Random;
use leasehold_testkit::servers::{Persistence, Postgres, RedisServer, independent};

use crate::support::{LONG, fenced, granted, owner_on, redlock, take, until};

/// The server forgets all scripts between any two calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_10_forgotten_scripts_are_sent_again() {
    let (mut servers, postgres) = (independent(3), Postgres::start());
    let lockers = [Locker::new(Redis::open(&servers[0].url()).unwrap()), fenced(&servers[0], &postgres), {
        Locker::new(redlock(&servers))
    }];
    for locker in &lockers {
        for round in 0..2 {
            let guard = granted(locker.acquire("job").ttl(Duration::from_millis(4_500)).await);
            forget_scripts(&servers);
            // Renewed at least once with a script that is not there.
            tokio::time::sleep(Duration::from_secs(2)).await;
            guard.check().unwrap_or_else(|error| panic!("{} in round {round}: {error}", locker.store()));
            forget_scripts(&servers);
            assert_eq!(guard.release().await.unwrap(), Released::Released, "{}", locker.store());
            forget_scripts(&servers);
        }
    }
    for server in &mut servers {
        server.kill9();
        server.restart();
    }
    for locker in &lockers {
        // Right after a restart too few servers may answer yet, which is said and not waited for.
        let deadline = Instant::now() + LONG;
        let acquired = loop {
            match locker.acquire("job").wait(LONG).await {
                Err(LockError::Unknown { .. }) if Instant::now() < deadline => {}
                acquired => break acquired,
            }
        };
        assert_eq!(granted(acquired).release().await.unwrap(), Released::Released);
    }
}

/// Until they are seen to be forgotten: a release that is repeated in the background may bring one back at once.
fn forget_scripts(servers: &[RedisServer]) {
    for server in servers {
        let is_forgotten = |_| {
            let () = server.command(&["SCRIPT", "FLUSH"]);
            server.info("memory", "number_of_cached_scripts") == "0"
        };
        assert!((0..100).any(is_forgotten), "the scripts stay");
    }
}

/// A user that may not run scripts is told so, in words that name what is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_10_forbidden_scripts_are_refused_with_the_reason() {
    let server = RedisServer::start();
    let () = server.command(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-@scripting"]);
    let url = format!("redis://app:secret@{}", server.address());
    let locker = Locker::new(Redis::open(&url).unwrap());
    let error = locker.acquire(["a", "b"]).no_wait().await.unwrap_err();
    let LockError::Refused { source, .. } = &error else { panic!("{error:?}") };
    let reason = source.to_string();
    assert!(reason.to_lowercase().contains("permission"), "does not say what to fix: {reason}");
    assert!(!format!("{error:?}").contains("secret"));
    // Alone on its connection: together with others, as with the release of what was refused, it would be in a script too.
    let locker = Locker::new(Redis::open(&url).unwrap());
    let guard = granted(locker.acquire("a").ttl(Duration::from_millis(600)).no_wait().await);
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, LockError::Refused { .. }), "{error:?}");
}

/// Values that are empty, or no text at all, are somebody else's, and are neither renewed nor deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_11_foreign_values_are_compared_as_bytes_and_left_alone() {
    let server = RedisServer::start();
    let store = Redis::open(&server.url()).unwrap();
    let locker = Locker::new(Redis::open(&server.url()).unwrap());
    let owner = Owner::random(None);
    let value: &[u8] = owner.as_str().as_bytes();
    let with_more = [value, b"\0"].concat();
    for foreign in [b"".as_slice(), b"\0", b"\xff\xfe\x00\r\n", &with_more, &value[..value.len() - 1]] {
        let mut connection = server.connection();
        let () = redis_set(&mut connection, foreign);
        let held = Held {
            names: Names::try_from("job").unwrap(),
            owner: owner.clone(),
            ttl: Ttl::new(LONG).unwrap(),
            order: Order::Any,
        };
        assert_eq!(store.renew(std::slice::from_ref(&held)).await.remove(0).unwrap(), Renewed::Gone);
        assert_eq!(store.release(&held).await.unwrap(), Released::NotHeld);
        let answer = locker.acquire("job").owner(owner.clone()).no_wait().await.unwrap();
        assert!(matches!(answer, Acquired::Busy(_)), "{foreign:?}: {answer:?}");
        let there: Vec<u8> = server.command(&["GET", "lock:job"]);
        assert_eq!(there, foreign);
    }
}

fn redis_set(connection: &mut redis::Connection, value: &[u8]) {
    redis::cmd("SET").arg("lock:job").arg(value).query::<()>(connection).unwrap();
}

/// A server that throws away any key it likes: fences grow all the same, and their counters have no end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_13_eviction_takes_no_fence_back() {
    let postgres = Postgres::start();
    let options = RedisServer::options().persistence(Persistence::None);
    let server = options.args(&["--maxmemory", "3mb", "--maxmemory-policy", "allkeys-random"]).start();
    let locker = fenced(&server, &postgres);
    let mut last = Fence(0);
    let filler = "x".repeat(10_000);
    for round in 0..150 {
        let fence = take(&locker, "job").await;
        assert!(last < fence, "round {round}: {last:?}, then {fence:?}");
        last = fence;
        if round == 0 {
            let states: Vec<String> = server.command(&["KEYS", "leasehold:fences:*"]);
            assert_eq!(states.len(), 1);
            assert_eq!(server.command::<i64>(&["TTL", &states[0]]), -1, "the counter must not end by itself");
        }
        for key in 0..20 {
            let () = server.command(&["SET", &format!("filler:{round}:{key}"), &filler]);
        }
    }
    assert_ne!(server.info("stats", "evicted_keys"), "0", "nothing was evicted");
    assert!(last.0 >> 32 > 1, "the counter itself was never evicted: {last:?}");
}

/// A fence is a lease's for as long as it lasts, and the next owner's is another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_14_fence_stays_with_the_lease_and_changes_with_the_owner() {
    let (server, postgres) = (RedisServer::start(), Postgres::start());
    let locker = fenced(&server, &postgres);
    let mut last = Fence(0);
    for _ in 0..2 {
        let guard = granted(locker.acquire("job").ttl(Duration::from_millis(4_500)).await);
        let fence = guard.fence().unwrap();
        assert!(last < fence, "{last:?}, then {fence:?}");
        // Renewed, and asked for again by the same owner.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let again = granted(locker.acquire("job").owner(guard.owner().clone()).ttl(LONG).await);
        assert_eq!((guard.check().is_ok(), again.fence()), (true, Some(fence)));
        let there: String = server.command(&["GET", "lock:job"]);
        assert!(there.ends_with(&format!("#{}", fence.0)), "{there}");
        assert_eq!(again.release().await.unwrap(), Released::Released);
        last = fence;
    }
}

/// Whatever is dropped, and wherever it is then, with several names and their fences.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_25_dropped_future_leaves_no_lock_and_no_place_in_line() {
    let (server, postgres) = (RedisServer::start(), Postgres::start());
    let locker = fenced(&server, &postgres);
    take(&locker, "a").await;
    let mut random = Random::new(Random::seed_of_this_run("pitfall_25"));
    let mut dropped = 0;
    for round in 0..200 {
        let time = Duration::from_micros(random.within(0..1_500));
        let asking = async {
            let acquire =
                if round % 2 == 0 { locker.acquire(["a", "b"]) } else { locker.acquire("a").in_order() };
            granted(acquire.ttl(LONG).wait(LONG).await).release().await.unwrap()
        };
        dropped += u32::from(tokio::time::timeout(time, asking).await.is_err());
    }
    assert!(dropped > 0, "nothing was dropped on its way");
    until("nothing is left", async || {
        ["lock:*", "leasehold:queue:*"]
            .iter()
            .all(|keys| server.command::<Vec<String>>(&["KEYS", keys]).is_empty())
    })
    .await;
}

/// Thousands of leases are renewed in bounded scripts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_17_thousands_of_leases_are_renewed_together() {
    let server = RedisServer::options().persistence(Persistence::None).start();
    let locker = Locker::new(Redis::open(&server.url()).unwrap());
    let mut guards = Vec::new();
    for index in 0..3_000 {
        guards.push(granted(locker.acquire(format!("job-{index}")).ttl(Duration::from_secs(3)).await));
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    assert_eq!(lost, 0);
    assert_eq!(server.command::<u32>(&["DBSIZE"]), 3_000);
    drop(guards);
    until("all are given back", async || server.command::<u32>(&["DBSIZE"]) == 0).await;
}

/// Every acquisition has a token of its own, also of one locker, one name and one task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_27_stale_guard_cannot_release_its_successor() {
    let server = RedisServer::start();
    let locker = Locker::new(Redis::open(&server.url()).unwrap());
    let stale = granted(locker.acquire("job").ttl(Duration::from_secs(1)).no_renewal().await);
    let first = stale.owner().as_str().to_owned();
    until("the first lease ends", async || owner_on(&server, "job").is_none()).await;
    let successor = granted(locker.acquire("job").ttl(LONG).await);
    assert_ne!(owner_on(&server, "job").unwrap(), first);
    assert_eq!(stale.release().await.unwrap(), Released::NotHeld);
    assert_eq!(owner_on(&server, "job").as_deref(), Some(successor.owner().as_str()));
}
