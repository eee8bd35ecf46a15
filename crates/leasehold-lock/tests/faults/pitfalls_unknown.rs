//! Pitfalls 2, 21, 22 and 28: answers that are late or lost. No answer is neither yes nor no.

use std::time::{Duration, Instant};

use leasehold_lock::backend::Released;
use leasehold_lock::{LeaseState, LockError, Locker, LostReason, Owner, Redis};
use leasehold_testkit::Lateness;
use leasehold_testkit::servers::{Direction, FaultProxy, RedisCluster, RedisServer};

use crate::support::{LONG, PATIENCE, granted, in_time, lost, owner_on, until, until_within};

/// A server behind a proxy, and a locker that only knows the proxy.
async fn behind_proxy() -> (RedisServer, FaultProxy, Locker) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address()).await;
    let locker = Locker::new(Redis::open(&format!("redis://{}", proxy.address())).unwrap());
    (server, proxy, locker)
}

/// The grant arrives after its lease has ended. It is asked for again with the same token; what undoes the
/// first must not undo the second.
///
/// The lease is short, because an answer that comes after two of it must still be waited for. On a machine that stands
/// still for as long it is not renewed in time: then there is another round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_02_grant_that_came_too_late_does_not_take_the_next_one_away() {
    const ROUNDS: u32 = 5;
    /// A renewal every third of the lease, and an answer, must not be late by as much.
    const STALL: Duration = Duration::from_millis(100);
    let (server, proxy, locker) = behind_proxy().await;
    granted(locker.acquire("warm").await).release().await.unwrap();
    for _ in 0..ROUNDS {
        let lateness = Lateness::watch();
        let (is_held, slowest) = is_held_after_a_late_grant(&server, &proxy, &locker).await;
        if is_held {
            return;
        }
        let late_by = lateness.worst().max(slowest);
        assert!(late_by > STALL, "it was not renewed, while the machine was late by {late_by:?}");
    }
    panic!("the machine stood still {ROUNDS} times in a row");
}

/// Whether what was asked for again is held for long, and how long the server took at most to answer meanwhile.
async fn is_held_after_a_late_grant(
    server: &RedisServer,
    proxy: &FaultProxy,
    locker: &Locker,
) -> (bool, Duration) {
    let ttl = Duration::from_millis(400);
    proxy.delay(Direction::Answers, ttl * 2);
    let asking = tokio::spawn({
        let locker = locker.clone();
        async move { locker.acquire("job").ttl(ttl).wait(PATIENCE).await }
    });
    let was_granted = async || owner_on(server, "job").is_some() || asking.is_finished();
    until("the server has granted it", was_granted).await;
    // From the second request on, answers are quick again.
    until("the first lease has ended", async || owner_on(server, "job").is_none()).await;
    proxy.pass().await;
    let acquired = in_time("a grant that is of use", asking).await.unwrap();
    if let Err(LockError::Unknown { .. }) = acquired {
        return (false, Duration::ZERO);
    }
    let guard = granted(acquired);
    let mut slowest = Duration::ZERO;
    let until_end = Instant::now() + ttl * 5;
    while Instant::now() < until_end {
        if guard.check().is_ok() {
            let asked = Instant::now();
            let owner = owner_on(server, "job");
            slowest = slowest.max(asked.elapsed());
            assert!(owner.is_some() || guard.check().is_err(), "held, and not on the server");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let is_held = guard.state() == LeaseState::Held;
    drop(guard);
    until("it is given back", async || owner_on(server, "job").is_none()).await;
    (is_held, slowest)
}

/// An acquisition is dropped and asked for again with the same token, as a repeated request to a server
/// would be. The clean-up of the first must not take the second one's lock away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_02_clean_up_of_a_dropped_acquisition_spares_the_same_owner() {
    let (server, proxy, locker) = behind_proxy().await;
    granted(locker.acquire("warm").await).release().await.unwrap();
    for delay in [0, 30, 90, 150] {
        let (name, owner) = (format!("job-{delay}"), Owner::random(None));
        proxy.delay(Direction::Answers, Duration::from_millis(100));
        let first = async { locker.acquire(&name).owner(owner.clone()).ttl(LONG).no_wait().await };
        let dropped = tokio::time::timeout(Duration::from_millis(20), first).await;
        assert!(dropped.is_err(), "it was dropped on its way");
        tokio::time::sleep(Duration::from_millis(delay)).await;
        proxy.pass().await;
        let second = async { locker.acquire(&name).owner(owner.clone()).ttl(LONG).no_wait().await };
        let guard = granted(in_time("an answer", second).await);
        // The clean-up goes on for a bit more than a second.
        let watched = Instant::now();
        while watched.elapsed() < Duration::from_millis(1_600) {
            let there = owner_on(&server, &name);
            assert_eq!(there.as_deref(), Some(owner.as_str()), "taken away {:?} later", watched.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}

/// A renewal takes effect and its answer is lost: in doubt, not lost; and held again with the next answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_21_lost_answer_to_a_renewal_is_doubt_and_then_held_again() {
    let (server, proxy, locker) = behind_proxy().await;
    // The server knows the scripts: otherwise only its saying that it does not would be lost.
    let warm = granted(locker.acquire("warm").ttl(Duration::from_millis(300)).await);
    tokio::time::sleep(Duration::from_millis(250)).await;
    warm.release().await.unwrap();
    let ttl = Duration::from_secs(6);
    let guard = granted(locker.acquire("job").ttl(ttl).await);
    proxy.swallow(Direction::Answers);
    proxy.wait_for(|traffic| traffic.swallowed_answer_bytes > 0).await;
    let remaining: u64 = server.command(&["PTTL", "lock:job"]);
    assert!(remaining > 5_000, "the renewal has taken effect: {remaining} ms");
    until("doubt", async || guard.state() == LeaseState::Doubtful).await;
    assert!(guard.check().is_ok(), "in doubt is not lost");
    assert!(locker.meters().renewal_failures.get() > 0, "nobody would see it in the meters");
    assert!(guard.time_left() > Duration::ZERO);
    proxy.pass().await;
    until("held again", async || guard.state() == LeaseState::Held).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// The renewer is cut off. The holder is told before the server lets anybody else in. A machine that stands still for
/// longer than the margin at the end of a lease is late; then there is another round with a longer one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_22_holder_that_is_cut_off_is_told_before_the_lease_ends() {
    for seconds in [5, 10, 20, 40] {
        let ttl = Duration::from_secs(seconds);
        let lateness = Lateness::watch();
        let (is_in_time, asking_took) = is_told_in_time(ttl).await;
        if is_in_time {
            return;
        }
        let late_by = lateness.worst().max(asking_took);
        let is_excused = late_by > ttl / 64;
        assert!(is_excused, "somebody else could have had it already, without a reason: {late_by:?}");
    }
    panic!("the holder was told too late every time");
}

/// Whether the holder was told while the server still had the lock, and how long asking the server took.
async fn is_told_in_time(ttl: Duration) -> (bool, Duration) {
    let (server, proxy, locker) = behind_proxy().await;
    let guard = granted(locker.acquire("job").ttl(ttl).await);
    proxy.swallow(Direction::Requests);
    proxy.swallow(Direction::Answers);
    let work = guard.run(std::future::pending::<()>());
    let stopped = tokio::time::timeout(ttl * 2, work).await.expect("the work is stopped");
    let asked = Instant::now();
    let remaining: i64 = server.command(&["PTTL", "lock:job"]);
    let asking_took = asked.elapsed();
    assert!(matches!(stopped, Err(LockError::Lost { reason: LostReason::NotRenewed, .. })), "{stopped:?}");
    assert!(proxy.traffic().swallowed_request_bytes > 0, "nothing was cut off");
    assert_eq!(guard.state(), LeaseState::Lost);
    until("it is counted", async || lost(&locker, "not-renewed") == 1).await;
    assert_eq!(lost(&locker, "gone"), 0);
    (remaining > 0, asking_took)
}

/// The only thread of the runtime is blocked past the deadline: nothing could fire a signal, and yet the
/// first look afterwards is right, and work that finished late is not taken for work under the lock.
#[test]
fn pitfall_22_blocked_thread_is_told_at_the_first_look() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locker = Locker::new(Redis::open(&server.url()).unwrap());
        let ttl = Duration::from_millis(600);
        let guard = granted(locker.acquire("job").ttl(ttl).await);
        let worked = guard.run(async { std::thread::sleep(ttl * 2) }).await;
        assert!(matches!(worked, Err(LockError::Lost { .. })), "{worked:?}");
        assert!(guard.check().is_err());
        assert_eq!(owner_on(&server, "job"), None, "the lease had ended");
        assert_eq!(in_time("the signal", guard.lost()).await, LostReason::NotRenewed);
    });
}

/// A release takes effect and its answer is lost. It is repeated in the background, and does nothing to the
/// successor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_28_release_repeated_after_a_lost_answer_spares_the_successor() {
    let (server, proxy, locker) = behind_proxy().await;
    granted(locker.acquire("warm").await).release().await.unwrap();
    let guard = granted(locker.acquire("job").ttl(LONG).await);
    proxy.swallow(Direction::Answers);
    let released = tokio::spawn(guard.release());
    until("the release has taken effect", async || owner_on(&server, "job").is_none()).await;
    let () = server.command(&["SET", "lock:job", "the-successors-token", "PX", "60000"]);
    let answer = in_time("an answer", released).await.unwrap();
    assert!(matches!(answer, Err(LockError::Unknown { .. })), "{answer:?}");
    proxy.pass().await;
    let before = proxy.traffic().request_bytes;
    proxy.wait_for(|traffic| traffic.request_bytes > before).await;
    locker.settle(PATIENCE).await;
    assert_eq!(owner_on(&server, "job").as_deref(), Some("the-successors-token"));
}

/// A release that finds no server goes on trying, and frees the name when there is one again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_28_release_without_a_server_is_done_when_it_is_back() {
    let mut server = RedisServer::start();
    let locker = Locker::new(Redis::open(&server.url()).unwrap());
    let guard = granted(locker.acquire("job").ttl(LONG).await);
    server.kill9();
    let answer = in_time("an answer", guard.release()).await;
    assert!(matches!(answer, Err(LockError::Unknown { .. })), "{answer:?}");
    // Nobody uses the locker any more, and still it must not forget.
    drop(locker);
    tokio::time::sleep(Duration::from_millis(700)).await;
    server.restart();
    assert!(owner_on(&server, "job").is_some(), "the server remembers the lock");
    until("it is released, long before its end", async || owner_on(&server, "job").is_none()).await;
}

/// A request is still under way over a connection that is lost. The same is asked for over the next one, had and given back;
/// then the first arrives, and must not keep the name for the length of its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_02_request_that_arrives_after_its_repetition_was_released_is_released_too() {
    const LATE: Duration = Duration::from_secs(1);
    const ROUNDS: u32 = 5;
    let (server, proxy, locker) = behind_proxy().await;
    granted(locker.acquire("warm").await).release().await.unwrap();
    for round in 0..ROUNDS {
        let name = format!("job-{round}");
        let began = Instant::now();
        proxy.delay(Direction::Requests, LATE);
        let asking = tokio::spawn(locker.acquire(&name).ttl(LONG).into_future());
        tokio::time::sleep(Duration::from_millis(100)).await;
        proxy.hang_up();
        proxy.pass().await;
        let guard = granted(in_time("the repetition is answered", asking).await.unwrap());
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        let is_in_order = began.elapsed() < LATE && owner_on(&server, &name).is_none();
        if !is_in_order {
            // The first request has arrived already, or may have: this round tells nothing.
            continue;
        }
        let sent = proxy.traffic().request_bytes;
        until("the first request arrives", async || {
            owner_on(&server, &name).is_some() || proxy.traffic().request_bytes > sent + 1_000
        })
        .await;
        until_within(Duration::from_secs(5), "the name is free", async || owner_on(&server, &name).is_none())
            .await;
        return;
    }
    panic!("the release was late {ROUNDS} times in a row");
}

/// However many ask a server that stands still: each is told after its own attempts, not after those of all before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_28_many_who_ask_a_server_that_stands_still_are_told_at_the_same_time() {
    const ASKING: usize = 60;
    /// An answer that is not waited for any more, and two attempts to connect. One after the other they would take minutes.
    const TOLD_WITHIN: Duration = Duration::from_secs(20);
    let mut server = RedisServer::start();
    let locker = Locker::new(Redis::open(&server.url()).unwrap());
    granted(locker.acquire("warm").await).release().await.unwrap();
    server.pause();
    let began = Instant::now();
    let asking: Vec<_> = (0..ASKING)
        .map(|number| tokio::spawn(locker.acquire(format!("job-{number}")).no_wait().into_future()))
        .collect();
    for ask in asking {
        let told = ask.await.unwrap();
        assert!(matches!(told, Err(LockError::Unknown { .. })), "{told:?}");
    }
    let told = began.elapsed();
    println!("all were told after {told:?}");
    assert!(told < TOLD_WITHIN, "the last one was told after {told:?}");
    server.resume();
    let guard = in_time("it is served again", locker.acquire("job-0").wait(PATIENCE).into_future());
    granted(guard.await).release().await.unwrap();
}

/// A cluster's client sends a release again when its answer is lost. That the name was not held the second time is not said
/// of the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_02_release_of_a_cluster_whose_answer_was_lost_is_not_called_a_loss() {
    let cluster = RedisCluster::start();
    let proxies = cluster.put_behind_proxies().await;
    let addresses: Vec<String> = proxies.iter().map(FaultProxy::address).collect();
    let locker = Locker::new(Redis::open(&format!("redis-cluster://{}", addresses.join(","))).unwrap());
    let on_node = |name: &str| {
        let lock = format!("lock:{name}");
        cluster.server(cluster.master_of(&lock)).command::<Option<String>>(&["GET", &lock])
    };
    for (number, name) in ["cut", "late"].into_iter().enumerate() {
        // So that the server knows the script.
        granted(locker.acquire(name).await).release().await.unwrap();
        let guard = granted(locker.acquire(name).ttl(LONG).await);
        proxies.iter().for_each(|proxy| proxy.swallow(Direction::Answers));
        let releasing = tokio::spawn(guard.release());
        until("it is released", async || on_node(name).is_none()).await;
        if number == 0 {
            // The connection is lost at once; otherwise the client gives up waiting.
            for proxy in &proxies {
                proxy.cut().await;
            }
        } else {
            tokio::time::sleep(Duration::from_millis(1_200)).await;
        }
        for proxy in &proxies {
            proxy.pass().await;
        }
        match in_time("an answer", releasing).await.unwrap() {
            Ok(Released::Released) | Err(LockError::Unknown { .. }) => {}
            other => panic!("{name}: {other:?}"),
        }
    }
}
