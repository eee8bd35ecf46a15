//! Servers whose wall clock is set while locks are held: what is documented is what happens.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_lock::backend::{Attempt, Backend, Order, Request};
use leasehold_lock::{Acquired, Fence, LeaseState, Locker, LostReason, Names, Owner, Redis, Settings, Ttl};
use leasehold_testkit::servers::{ClockShift, Postgres, RedisServer};

use crate::support::{LONG, fenced, granted, in_line, in_time, owner_on, redlock, take, until};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

fn server_time(server: &RedisServer) -> i64 {
    let (seconds, _): (i64, i64) = server.command(&["TIME"]);
    seconds
}

/// Sets the clock and checks that the server goes by it.
fn set(clock: &ClockShift, server: &RedisServer, offset_ms: i64) {
    let before = server_time(server);
    clock.set_ms(offset_ms);
    let moved = server_time(server) - before;
    assert!((moved - offset_ms / 1_000).abs() < 30, "the clock moved by {moved} s");
}

/// Pitfall 15: a minute forward ends every shorter lease on plain Redis. Two owners are possible: that is why
/// it grants `lease` and says so. The holder learns of it at its next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_15_minute_forward_breaks_the_lease_and_the_holder_is_told() {
    let clock = ClockShift::new();
    let server = RedisServer::options().clock(&clock).start();
    let locker = Locker::new(Redis::open(&server.url()).unwrap());
    assert!(locker.guarantees().because.contains("clock"), "the store says what it rests on");
    let guard = granted(locker.acquire("job").ttl(Duration::from_secs(6)).await);
    set(&clock, &server, MINUTE_MS);
    let second = granted(locker.acquire("job").ttl(LONG).no_wait().await);
    assert_eq!(guard.state(), LeaseState::Held, "nobody can know yet: this is the two-owner window");
    assert_eq!(in_time("the first holder is told", guard.lost()).await, LostReason::Gone);
    assert!(second.check().is_ok());
}

/// The same with epochs: the lease is broken, the fence decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_15_minute_forward_and_hour_back_never_take_a_fence_back() {
    let clock = ClockShift::new();
    let (server, postgres) = (RedisServer::options().clock(&clock).start(), Postgres::start());
    let locker = fenced(&server, &postgres);
    let mut last = Fence(0);
    let right = server_time(&server);
    for offset in [0, MINUTE_MS, -HOUR_MS, 0] {
        clock.set_ms(offset);
        assert!((server_time(&server) - right - offset / 1_000).abs() < 30, "the clock is where it was put");
        let holder = granted(locker.acquire("job").ttl(Duration::from_secs(5)).wait(LONG).await);
        assert!(last < holder.fence().unwrap(), "at {offset} ms");
        last = holder.fence().unwrap();
        holder.release().await.unwrap();
    }
}

/// An hour back makes leases last an hour longer on the server. Nobody is let in, and the holder, who goes by
/// its own clock, can still give it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_15_hour_back_lets_nobody_in_and_the_release_still_works() {
    let clock = ClockShift::new();
    let server = RedisServer::options().clock(&clock).start();
    let locker = Locker::new(Redis::open(&server.url()).unwrap());
    let guard = granted(locker.acquire("job").ttl(Duration::from_secs(2)).no_renewal().await);
    set(&clock, &server, -HOUR_MS);
    assert_eq!(in_time("its own clock ends it", guard.lost()).await, LostReason::NotRenewed);
    let rival = locker.acquire("job").no_wait().await;
    assert!(matches!(rival, Ok(Acquired::Busy(_))), "{rival:?}");
    drop(guard);
    until("given back in spite of the clock", async || owner_on(&server, "job").is_none()).await;
}

/// The line goes by the server's clock. A minute forward everybody in it seems to be dead, and they line up anew; an
/// hour back the dead seem to be alive, and cost a claim each. Either way all get the lock, one at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_19_everybody_in_line_gets_the_lock_although_the_clock_jumps() {
    for offset in [MINUTE_MS, -HOUR_MS] {
        let clock = ClockShift::new();
        let server = RedisServer::options().clock(&clock).start();
        // Nobody misses a turn for being slow.
        let redis = Redis::open(&server.url()).unwrap().with_claim_time(Duration::from_secs(2));
        let store = Arc::new(redis);
        let locker = Locker::with_settings(store.clone(), Settings::default());
        // Longer than the jump, which does not end it.
        let first = granted(locker.acquire("job").ttl(Duration::from_secs(7_200)).no_renewal().await);
        // It dies at the jump; until then it is heard of, however slow the machine is.
        let (names, owner) = (Names::try_from("job").unwrap(), Owner::random(None));
        let dies = Request { names: &names, owner: &owner, ttl: Ttl::new(LONG).unwrap(), order: Order::Fifo };
        let are_in_line = async |expected: u32| {
            assert!(matches!(store.try_acquire(&dies).await, Ok(Attempt::Busy(_))));
            in_line(&server) == expected
        };
        assert!(are_in_line(1).await);
        let (turns, is_held) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let mut waiting = Vec::new();
        for number in 0..4 {
            let acquire = locker.acquire("job").ttl(LONG).wait(LONG).in_order();
            let (turns, is_held) = (turns.clone(), is_held.clone());
            waiting.push(tokio::spawn(async move {
                let guard = granted(acquire.await);
                assert!(!is_held.swap(true, Ordering::SeqCst), "two at a time");
                turns.lock().unwrap().push(number);
                tokio::time::sleep(Duration::from_millis(20)).await;
                is_held.store(false, Ordering::SeqCst);
                guard.release().await.unwrap();
            }));
            until("it stands in line", async || are_in_line(number + 2).await).await;
        }
        set(&clock, &server, offset);
        first.release().await.unwrap();
        for waiter in waiting {
            in_time("its turn", waiter).await.unwrap();
        }
        let mut turns = turns.lock().unwrap().clone();
        if offset < 0 {
            assert_eq!(turns, [0, 1, 2, 3], "nobody was taken for dead");
        }
        turns.sort_unstable();
        assert_eq!(turns, [0, 1, 2, 3]);
        until("nothing is left", async || server.command::<usize>(&["DBSIZE"]) == 0).await;
    }
}

/// One of five clocks is wrong: the majority holds, and fences grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_15_redlock_withstands_one_clock_that_jumps() {
    for offset in [MINUTE_MS, -HOUR_MS] {
        let clock = ClockShift::new();
        let mut servers = vec![RedisServer::options().clock(&clock).start()];
        servers.extend(leasehold_testkit::servers::independent(4));
        let locker = Locker::new(redlock(&servers));
        let before = take(&locker, "job").await;
        let guard = granted(locker.acquire("job").ttl(Duration::from_secs(20)).await);
        set(&clock, &servers[0], offset);
        if offset > 0 {
            until("the server has forgotten the lock", async || owner_on(&servers[0], "job").is_none()).await;
        }
        let rival = locker.acquire("job").no_wait().await;
        assert!(matches!(rival, Ok(Acquired::Busy(_))), "{rival:?}");
        assert_eq!(guard.state(), LeaseState::Held);
        assert!(guard.fence().unwrap() > before);
        guard.release().await.unwrap();
        assert!(take(&locker, "job").await > before);
    }
}
