//! Redlock with servers that lose their memory: they do not vote until their counters are copied.

use std::time::{Duration, Instant};

use leasehold_lock::{Acquired, LockError, Locker, LostReason};
use leasehold_testkit::servers::{Persistence, RedisServer, independent};

use crate::support::{LONG, PATIENCE, granted, in_time, owner_on, redlock, take, until};

fn status(server: &RedisServer) -> Option<String> {
    server.command(&["HGET", "leasehold:redlock", "status"])
}

/// Waits until a server may vote, while somebody asks for locks.
async fn admitted(locker: &Locker, server: &RedisServer) {
    let deadline = Instant::now() + PATIENCE;
    while status(server).as_deref() != Some("admitted") {
        assert!(Instant::now() < deadline, "still {:?}", status(server));
        let _ = locker.acquire("somebody asks").no_wait().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A crash that loses the disk as well. The scripts are gone, too.
fn restart_empty(server: &mut RedisServer) {
    server.kill9();
    server.restart_empty();
}

/// Somebody empties a server that goes on running, and keeps its scripts.
fn flush(server: &mut RedisServer) {
    let () = server.command(&["FLUSHALL"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_07_emptied_server_is_quarantined_and_then_votes_again() {
    is_quarantined_and_then_votes_again(restart_empty).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_07_flushed_server_is_quarantined_and_then_votes_again() {
    is_quarantined_and_then_votes_again(flush).await;
}

/// A server that lost everything is out for a while, gets the counters of the others, and votes again.
async fn is_quarantined_and_then_votes_again(forget: fn(&mut RedisServer)) {
    let mut servers = independent(5);
    let locker = Locker::new(redlock(&servers));
    let mut last = take(&locker, "job").await;
    forget(&mut servers[0]);
    assert_eq!(status(&servers[0]), None, "it has lost its memory");
    // Meanwhile the others go on.
    for _ in 0..5 {
        let fence = take(&locker, "job").await;
        assert!(last < fence, "{last:?}, then {fence:?}");
        last = fence;
    }
    assert_eq!(status(&servers[0]).as_deref(), Some("empty"), "it must not vote yet");
    assert_eq!(owner_on(&servers[0], "job"), None);
    admitted(&locker, &servers[0]).await;
    let counters: Vec<String> = servers[0].command(&["HVALS", "leasehold:redlock"]);
    let highest = counters.iter().filter_map(|value| value.parse::<u64>().ok()).max();
    assert!(highest >= Some(last.0), "the counters of the others were not copied: {highest:?} < {last:?}");
    // Now its vote is needed.
    servers[3].kill9();
    servers[4].kill9();
    let fence = take(&locker, "job").await;
    assert!(last < fence, "{last:?}, then {fence:?}");
}

/// A command that runs under a lock asks for it once. If nobody lives longer, it is the one to end a quarantine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_07_holder_that_only_renews_ends_a_quarantine() {
    let mut servers = independent(3);
    take(&Locker::new(redlock(&servers)), "job").await;
    restart_empty(&mut servers[2]);
    let locker = Locker::new(redlock(&servers));
    let guard = granted(locker.acquire("job").ttl(Duration::from_secs(3)).wait(PATIENCE).await);
    until("its vote is back", async || status(&servers[2]).as_deref() == Some("admitted")).await;
    guard.release().await.unwrap();
}

/// What a server that lost everything is told by the others comes from those who remember: not from one that has started
/// again with an old copy since, and of which nobody has noticed that yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_07_counters_are_not_copied_from_another_server_that_forgot() {
    let mut servers = RedisServer::options().persistence(Persistence::None).start_independent(3);
    let locker = Locker::new(redlock(&servers));
    take(&locker, "job").await;
    until("all may vote", async || {
        take(&locker, "somebody asks").await;
        servers.iter().all(|server| status(server).as_deref() == Some("admitted"))
    })
    .await;
    // Somebody who only renews, and whose lock is in the old copy, too.
    let guard = granted(locker.acquire("held").ttl(Duration::from_secs(6)).await);
    let () = servers[1].command(&["SAVE"]);
    servers[2].pause();
    let mut highest = take(&locker, "job").await;
    for _ in 0..20 {
        highest = take(&locker, "job").await;
    }
    servers[2].resume();

    // The first one's quarantine begins while the second one remembers.
    restart_empty(&mut servers[0]);
    until("it was looked at", async || {
        let _ = locker.acquire("somebody asks").no_wait().await;
        status(&servers[0]).as_deref() == Some("empty")
    })
    .await;
    servers[1].kill9();
    servers[1].restart();
    assert_eq!(
        status(&servers[1]).as_deref(),
        Some("admitted"),
        "it remembers that it could vote, and no more"
    );
    until("its quarantine is over", async || status(&servers[0]).as_deref() == Some("admitted")).await;
    assert_eq!(status(&servers[1]).as_deref(), Some("stale"), "it was looked at before it was believed");
    guard.check().expect("it was renewed all the time");

    // With too few to copy from, and all of them at hand, counters begin anew above all that were.
    until("they go on", async || {
        locker.acquire("job").no_wait().await.is_ok_and(|acquired| {
            acquired.granted().and_then(|guard| guard.fence()).is_some_and(|fence| {
                assert!(highest < fence, "{highest:?}, then {fence:?}");
                true
            })
        })
    })
    .await;
}

/// A server in quarantine does not vote, not even when nobody else is left to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_07_server_in_quarantine_does_not_make_a_majority() {
    let mut servers = independent(5);
    let locker = Locker::new(redlock(&servers));
    let before = take(&locker, "job").await;
    servers[0].kill9();
    servers[0].restart_empty();
    servers[3].kill9();
    servers[4].kill9();
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        match in_time("an answer", async { locker.acquire("job").ttl(LONG).no_wait().await }).await {
            Err(LockError::Unknown { .. }) => {}
            other => panic!("two that remember and one that does not are no majority: {other:?}"),
        }
    }
    assert_eq!(status(&servers[0]).as_deref(), Some("empty"));
    servers[3].restart();
    servers[4].restart();
    admitted(&locker, &servers[0]).await;
    assert!(take(&locker, "job").await > before);
}

/// A server that writes to its disk only now and then may have forgotten the last second: it is out, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_07_restarted_server_without_certain_persistence_is_quarantined() {
    let mut servers = RedisServer::options().persistence(Persistence::EverySecond).start_independent(3);
    let locker = Locker::new(redlock(&servers));
    let mut last = take(&locker, "job").await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    servers[0].kill9();
    servers[0].restart();
    assert_eq!(status(&servers[0]).as_deref(), Some("admitted"), "it remembers that it could vote");
    for _ in 0..5 {
        let fence = take(&locker, "job").await;
        assert!(last < fence);
        last = fence;
    }
    assert_eq!(status(&servers[0]).as_deref(), Some("stale"), "and yet it must not");
    admitted(&locker, &servers[0]).await;
    servers[1].kill9();
    assert!(take(&locker, "job").await > last);
}

/// A server that has every answered write on its disk votes at once after a crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_07_restarted_server_with_certain_persistence_votes_at_once() {
    let mut servers = independent(3);
    let locker = Locker::new(redlock(&servers));
    let last = take(&locker, "job").await;
    servers[2].kill9();
    servers[0].kill9();
    servers[0].restart();
    assert!(take(&locker, "job").await > last);
    assert_eq!(status(&servers[0]).as_deref(), Some("admitted"));
}

/// Settings of the present run say nothing about what the run before may have forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_07_server_that_became_durable_with_its_restart_is_quarantined() {
    let mut servers = RedisServer::options().persistence(Persistence::Always).start_independent(3);
    let () = servers[0].command(&["CONFIG", "SET", "appendfsync", "everysec"]);
    let locker = Locker::new(redlock(&servers));
    let last = take(&locker, "job").await;
    until("all may vote", async || {
        take(&locker, "somebody asks").await;
        servers.iter().all(|server| status(server).as_deref() == Some("admitted"))
    })
    .await;
    for server in &mut servers[..2] {
        server.kill9();
        server.restart();
        let sync: Vec<String> = server.command(&["CONFIG", "GET", "appendfsync"]);
        assert_eq!(sync[1], "always", "now it looks as if it could forget nothing");
    }
    // The others are a majority.
    assert!(take(&locker, "job").await > last);
    until("both were looked at", async || {
        take(&locker, "somebody asks").await;
        status(&servers[0]).as_deref() == Some("stale")
    })
    .await;
    assert_eq!(status(&servers[1]).as_deref(), Some("admitted"), "it was durable before, too");
}

/// All servers lost everything: old clients and new ones go on above all earlier fences.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_07_whole_set_restarted_empty_goes_on_with_higher_fences() {
    let mut servers = independent(5);
    let old_client = Locker::new(redlock(&servers));
    let mut last = take(&old_client, "job").await;
    for _ in 0..50 {
        last = take(&old_client, "job").await;
    }
    for server in &mut servers {
        server.kill9();
        server.restart_empty();
        assert_eq!(status(server), None);
    }
    let new_client = Locker::new(redlock(&servers));
    for locker in [&old_client, &new_client, &old_client] {
        let deadline = Instant::now() + PATIENCE;
        let fence = loop {
            match locker.acquire("job").await {
                Ok(Acquired::Granted(guard)) => break guard.fence().unwrap(),
                other => assert!(Instant::now() < deadline, "{other:?}"),
            }
        };
        assert!(last < fence, "{last:?}, then {fence:?}");
        last = fence;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_07_forgetful_member_of_the_majority_lets_nobody_in_during_quarantine() {
    lets_nobody_in_during_quarantine(restart_empty).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_07_flushed_member_of_the_majority_lets_nobody_in_during_quarantine() {
    lets_nobody_in_during_quarantine(flush).await;
}

/// Held on exactly a majority, one of which forgets before the first renewal has set it on the others. While that one is in
/// quarantine nobody else gets in; after that somebody may, with a higher fence, and the holder is told at its next renewal.
async fn lets_nobody_in_during_quarantine(forget: fn(&mut RedisServer)) {
    let mut servers = independent(5);
    let (holder, rival) = (Locker::new(redlock(&servers)), Locker::new(redlock(&servers)));
    take(&rival, "other").await;
    servers[3].kill9();
    servers[4].kill9();
    let guard = granted(holder.acquire("job").ttl(Duration::from_secs(36)).await);
    servers[3].restart();
    servers[4].restart();
    let on =
        |servers: &[RedisServer]| servers.iter().filter(|server| owner_on(server, "job").is_some()).count();
    assert_eq!(on(&servers), 3, "held on exactly a majority");
    forget(&mut servers[2]);
    assert_eq!(on(&servers), 2);
    let began = Instant::now();
    let mut refused = 0;
    let taken = loop {
        match in_time("an answer", async { rival.acquire("job").no_wait().await }).await {
            Ok(Acquired::Granted(taken)) => break taken,
            Ok(Acquired::Busy(_)) | Err(LockError::Unknown { .. }) => refused += 1,
            Err(error) => panic!("{error:?}"),
        }
        assert!(began.elapsed() < PATIENCE, "never let in again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(refused > 0 && began.elapsed() > Duration::from_millis(2_500), "let in at once");
    assert!(taken.fence() > guard.fence(), "the fence decides between the two");
    assert_eq!(in_time("the holder is told", guard.lost()).await, LostReason::Gone);
    until("the name is the rival's", async || owner_on(&servers[2], "job").is_some()).await;
}
