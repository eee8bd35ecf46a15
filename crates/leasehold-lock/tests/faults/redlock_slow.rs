//! Redlock with servers that stand still: they set no pace, and what reaches them late does no harm.

use std::time::{Duration, Instant};

use leasehold_lock::backend::Released;
use leasehold_lock::{Acquired, LockError, Locker, Redlock};
use leasehold_testkit::servers::{Direction, FaultProxy, RedisServer, independent};

use crate::support::{LONG, PATIENCE, granted, in_time, owner_on, redlock, take, until, until_within};

/// What is asked of one server is given up after 500 ms. Whoever waits for a server that stands still needs
/// at least that for every call; this is half of it.
const PACE: Duration = Duration::from_millis(250);
const ROUNDS: u32 = 20;

async fn rounds(locker: &Locker) -> Duration {
    let began = Instant::now();
    for _ in 0..ROUNDS {
        take(locker, "job").await;
    }
    began.elapsed()
}

/// Pitfall 9: neither acquiring nor releasing waits for a server that stands still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_09_server_that_stands_still_does_not_set_the_pace() {
    let mut servers = independent(5);
    let locker = Locker::new(redlock(&servers));
    take(&locker, "job").await;
    servers[1].pause();
    let took = rounds(&locker).await;
    assert!(took < PACE * ROUNDS, "{ROUNDS} rounds took {took:?}");
    // To find the name taken takes no longer, either.
    let _held = granted(locker.acquire("held").ttl(LONG).await);
    let began = Instant::now();
    for _ in 0..ROUNDS {
        let answer = locker.acquire("held").no_wait().await;
        assert!(matches!(answer, Ok(Acquired::Busy(_))), "{answer:?}");
    }
    assert!(began.elapsed() < PACE * ROUNDS, "{ROUNDS} refusals took {:?}", began.elapsed());
    servers[1].resume();
}

/// Pitfall 9: the same for a client that never saw that server alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_09_server_that_never_answered_does_not_set_the_pace() {
    let mut servers = independent(5);
    take(&Locker::new(redlock(&servers)), "job").await;
    servers[1].pause();
    let locker = Locker::new(redlock(&servers));
    take(&locker, "job").await;
    let took = rounds(&locker).await;
    assert!(took < PACE * ROUNDS, "{ROUNDS} rounds took {took:?}");
    servers[1].resume();
}

/// The same for renewals: they get through on the others, in time and without doubt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_09_servers_that_stand_still_do_not_keep_a_lease_from_being_renewed() {
    let mut servers = independent(5);
    let locker = Locker::new(redlock(&servers));
    // Most are enough for a grant, and on a busy machine some may answer too late for it: those two must not be
    // among just three that have it.
    let guard = loop {
        let guard = granted(locker.acquire("held").ttl(Duration::from_secs(3)).await);
        if servers.iter().all(|server| owner_on(server, "held").is_some()) {
            break guard;
        }
        guard.release().await.unwrap();
    };
    servers[1].pause();
    servers[4].pause();
    let until_end = Instant::now() + Duration::from_secs(7);
    while Instant::now() < until_end {
        guard.check().expect("it is renewed on three of five");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Every one of seven would, if it waited for those who stand still. A machine that is busy may be late once or twice.
    let failures = locker.meters().renewal_failures.get();
    assert!(failures < 3, "{failures} renewals waited for those who stand still");
    servers[1].resume();
    servers[4].resume();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// Pitfalls 5 and 6: a server gets the request to lock after the lock was released. Its key must not live on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_06_request_that_arrives_after_the_release_leaves_no_key() {
    let mut servers = independent(5);
    let locker = Locker::new(redlock(&servers));
    take(&locker, "job").await;
    servers[4].pause();
    let guard = granted(locker.acquire("late").ttl(LONG).await);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    servers[4].resume();
    until_within(Duration::from_secs(5), "the late key is gone", async || keys(&servers[4]).is_empty()).await;
}

/// Pitfalls 5 and 6: the request is still under way over a connection that is lost, and the release over the next one
/// overtakes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_06_request_over_a_lost_connection_that_the_release_overtook_takes_nothing() {
    let servers = independent(5);
    let proxy = FaultProxy::start(servers[4].address()).await;
    let mut addresses: Vec<String> = servers[..4].iter().map(RedisServer::address).collect();
    addresses.push(proxy.address());
    let locker = Locker::new(Redlock::open(&format!("redlock://{}", addresses.join(","))).unwrap());
    take(&locker, "job").await;
    until("the last server votes, too", async || {
        let guard = granted(locker.acquire("job").ttl(LONG).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let has_it = owner_on(&servers[4], "job").is_some();
        guard.release().await.unwrap();
        has_it
    })
    .await;

    const LATE: Duration = Duration::from_secs(8);
    proxy.delay(Direction::Requests, LATE);
    let began = Instant::now();
    let guard = granted(locker.acquire("late").ttl(LONG).await);
    // Until the proxy has it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let sent_before = proxy.traffic().request_bytes;
    proxy.hang_up();
    proxy.pass().await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    locker.settle(LATE).await;
    assert!(began.elapsed() < LATE, "the release came after the request");
    let sent = proxy.traffic().request_bytes;
    assert!(sent > sent_before, "nothing was sent again");

    tokio::time::sleep(LATE.saturating_sub(began.elapsed())).await;
    proxy.wait_for(|traffic| traffic.request_bytes > sent).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(keys(&servers[4]), Vec::<String>::new(), "the late request took the lock");
}

/// Pitfalls 5 and 6: the same over a pause that is longer than any connection waits, with many locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_06_long_pause_leaves_no_key_on_the_server_that_missed_the_releases() {
    let mut servers = independent(5);
    let locker = Locker::new(redlock(&servers));
    take(&locker, "job").await;
    servers[4].pause();
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < Duration::from_secs(5) {
        let guard = granted(locker.acquire(format!("late-{count}")).ttl(LONG * 10).await);
        guard.release().await.unwrap();
        count += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    servers[4].resume();
    // Whatever was on its way arrives now.
    until("the server has seen what was sent to it", async || answers(&servers[4])).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    until("all late keys are gone", async || keys(&servers[4]).is_empty()).await;
    assert!(count > 10);
}

/// Pitfall 2: an attempt that got no answer is repeated with the same token. What the first attempt still
/// sends out to undo itself must not take the second one's lock away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_02_leftovers_of_an_attempt_do_not_undo_the_next_one() {
    let mut servers = independent(5);
    let locker = Locker::new(redlock(&servers));
    take(&locker, "job").await;
    // Long enough for the first attempt and its release to go without an answer.
    for pause in [600, 1_050, 1_400] {
        servers[..3].iter_mut().for_each(RedisServer::pause);
        let name = format!("job-{pause}");
        let asking = tokio::spawn({
            let (locker, name) = (locker.clone(), name.clone());
            async move { locker.acquire(name).ttl(LONG).no_wait().await }
        });
        tokio::time::sleep(Duration::from_millis(pause)).await;
        servers[..3].iter_mut().for_each(RedisServer::resume);
        match in_time("an answer", asking).await.unwrap() {
            Ok(Acquired::Granted(guard)) => {
                let owner = guard.owner().as_str().to_owned();
                let is_mine = |server: &&RedisServer| owner_on(server, &name).as_ref() == Some(&owner);
                let watched = Instant::now();
                while watched.elapsed() < Duration::from_secs(3) {
                    let mine = servers.iter().filter(is_mine).count();
                    assert!(
                        mine >= 3,
                        "only {mine} of 5 servers know the holder, {:?} later",
                        watched.elapsed()
                    );
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            // That is an answer, too; and then nothing may be left.
            Err(LockError::Unknown { .. }) => {
                for server in &servers {
                    until("nothing is left", async || owner_on(server, &name).is_none()).await;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The keys of locks.
fn keys(server: &RedisServer) -> Vec<String> {
    server.command(&["KEYS", "lock:*"])
}

fn answers(server: &RedisServer) -> bool {
    server.try_command::<String>(&["PING"]).is_ok()
}

/// Pitfall 5: an acquisition that failed releases also where it had no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_05_failed_acquisition_is_undone_on_servers_that_answered_too_late() {
    let mut servers = independent(3);
    let locker = Locker::new(redlock(&servers));
    take(&locker, "job").await;
    servers[0].pause();
    servers[1].pause();
    let answer = in_time("an answer", async { locker.acquire("job").ttl(LONG).no_wait().await }).await;
    assert!(matches!(answer, Err(LockError::Unknown { .. }) | Ok(Acquired::Busy(_))), "{answer:?}");
    tokio::time::sleep(Duration::from_secs(4)).await;
    servers[0].resume();
    servers[1].resume();
    tokio::time::sleep(Duration::from_millis(500)).await;
    for server in &servers {
        until_within(PATIENCE, "nothing is left", async || owner_on(server, "job").is_none()).await;
    }
}

/// Nor does waiting: whoever waits a moment for names that nobody listened to before waits no longer than that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_09_server_that_stands_still_holds_up_nobody_who_waits() {
    const MOMENT: Duration = Duration::from_millis(200);
    const NAMES: usize = 8;
    let mut servers = independent(5);
    let (holder, waiter) = (Locker::new(redlock(&servers)), Locker::new(redlock(&servers)));
    take(&waiter, "job").await;
    let mut held = Vec::new();
    for number in 0..NAMES {
        held.push(granted(holder.acquire(format!("held-{number}")).ttl(LONG).await));
    }
    servers[1].pause();
    let mut took = Vec::new();
    for number in 0..NAMES {
        let began = Instant::now();
        let answer = waiter.acquire(format!("held-{number}")).wait(MOMENT).await;
        assert!(matches!(answer, Ok(Acquired::Busy(_))), "{answer:?}");
        took.push(began.elapsed());
    }
    took.sort_unstable();
    assert!(took[NAMES / 2] < MOMENT * 3, "they waited {took:?} for {MOMENT:?}");

    // And it hears of a release as soon as most servers have told it.
    let waiting = tokio::spawn(waiter.acquire("held-0").ttl(LONG).wait(PATIENCE).into_future());
    tokio::time::sleep(MOMENT).await;
    // If the one that stands still is in the majority that has it, nobody can tell for sure that it was released.
    let _ = held.remove(0).release().await;
    drop(granted(in_time("its turn", waiting).await.unwrap()));
}

/// A server without memory to spare can note nothing, not even that a request is called off. It releases all the same, and
/// is told again until it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_06_server_that_is_out_of_memory_releases_what_it_has() {
    let servers = independent(3);
    let proxy = FaultProxy::start(servers[2].address()).await;
    let addresses = [servers[0].address(), servers[1].address(), proxy.address()];
    let locker = Locker::new(Redlock::open(&format!("redlock://{}", addresses.join(","))).unwrap());
    until("the last server votes, too", async || {
        let guard = granted(locker.acquire("job").ttl(LONG).wait(PATIENCE).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let has_it = owner_on(&servers[2], "job").is_some();
        guard.release().await.unwrap();
        has_it
    })
    .await;
    locker.settle(PATIENCE).await;

    // Its vote gets there, and the answer never comes back.
    proxy.swallow(Direction::Answers);
    let guard = granted(locker.acquire("late").ttl(LONG * 10).await);
    until("it has voted", async || owner_on(&servers[2], "late").is_some()).await;
    proxy.cut().await;
    let () = servers[2].command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let () = servers[2].command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(servers[2].try_command::<String>(&["SET", "one", "more"]).is_err(), "it has memory to spare");
    proxy.pass().await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    until("it has released", async || owner_on(&servers[2], "late").is_none()).await;

    let called_off = || servers[2].command::<Vec<String>>(&["KEYS", "leasehold:called-off:*"]);
    assert!(called_off().is_empty());
    let () = servers[2].command(&["CONFIG", "SET", "maxmemory", "0"]);
    until("the request is called off", async || !called_off().is_empty()).await;
    locker.settle(PATIENCE).await;
    assert_eq!(keys(&servers[2]), Vec::<String>::new());
}
