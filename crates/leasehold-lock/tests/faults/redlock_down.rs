//! Redlock while some of its servers are down, and after they are back.

use std::time::Duration;

use leasehold_lock::backend::{ListQuery, Released};
use leasehold_lock::{Acquired, Fence, LeaseState, LockError, Locker, LostReason, StoreError};
use leasehold_testkit::servers::independent;

use crate::support::{LONG, granted, in_time, owner_on, redlock, take, until};

/// Pitfall 3: a majority of those configured is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_03_minority_down_changes_nothing() {
    let mut servers = independent(5);
    let locker = Locker::new(redlock(&servers));
    let mut last = take(&locker, "job").await;
    let held = loop {
        let held = granted(locker.acquire("held").ttl(Duration::from_secs(3)).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
        // Of a bare majority, which is what a slow machine may have given, two that are gone leave too few.
        if servers.iter().all(|server| owner_on(server, "held").is_some()) {
            break held;
        }
        assert_eq!(held.release().await.unwrap(), Released::Released);
    };
    servers[0].kill9();
    servers[3].kill9();
    for _ in 0..5 {
        let fence = take(&locker, "job").await;
        assert!(last < fence, "{last:?}, then {fence:?}");
        last = fence;
    }
    // Longer than its length: it was renewed on three of five.
    tokio::time::sleep(Duration::from_millis(5_000)).await;
    assert_eq!(held.state(), LeaseState::Held);
    let rival = locker.acquire("held").no_wait().await.unwrap();
    assert!(matches!(rival, Acquired::Busy(_)), "{rival:?}");
    assert_eq!(held.release().await.unwrap(), Released::Released);
    assert!(take(&locker, "held").await > Fence(0));
}

/// Pitfalls 3 and 5: without a majority nothing is granted, and what the minority gave is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_05_majority_down_grants_nothing_and_leaves_nothing() {
    let mut servers = independent(5);
    let locker = Locker::new(redlock(&servers));
    let before = take(&locker, "job").await;
    servers[..3].iter_mut().for_each(|server| server.kill9());
    for _ in 0..3 {
        match in_time("an answer", async { locker.acquire("job").ttl(LONG).no_wait().await }).await {
            Err(LockError::Unknown { .. }) | Ok(Acquired::Busy(_)) => {}
            other => panic!("two of five are no majority: {other:?}"),
        }
    }
    servers[..3].iter_mut().for_each(|server| server.restart());
    for server in &servers {
        until("nothing is left", async || owner_on(server, "job").is_none()).await;
    }
    let after = take(&locker, "job").await;
    assert!(before < after, "{before:?}, then {after:?}");
}

/// Pitfalls 8 and 21: a renewal that too few servers answer puts the lease in doubt, and takes nothing from
/// it: it is held again when they answer, and lost at its deadline when they do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_08_renewal_without_a_majority_is_doubt_and_not_loss() {
    let mut servers = independent(3);
    let locker = Locker::new(redlock(&servers));
    // The first grant needs only most of the servers; the third joins a moment later.
    until("all servers vote", async || {
        let guard = granted(locker.acquire("warm-up").await);
        let has_all = servers.iter().all(|server| owner_on(server, "warm-up").is_some());
        guard.release().await.unwrap();
        has_all
    })
    .await;
    let guard = granted(locker.acquire("job").ttl(Duration::from_secs(6)).await);
    let owner = guard.owner().as_str().to_owned();
    servers[0].pause();
    servers[1].pause();
    in_time("doubt", async {
        while guard.state() != LeaseState::Doubtful {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(guard.check().is_ok(), "in doubt is not lost");
    assert_eq!(owner_on(&servers[2], "job").as_ref(), Some(&owner), "a failed renewal must not release");
    servers[0].resume();
    servers[1].resume();
    until("held again", async || guard.state() == LeaseState::Held).await;
    servers[0].pause();
    servers[1].pause();
    assert_eq!(in_time("lost at the deadline", guard.lost()).await, LostReason::NotRenewed);
    servers[0].resume();
    servers[1].resume();
}

/// Without most of the servers nobody knows what there is, which is not the same as nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_without_a_majority_is_an_error_and_with_one_is_whole() {
    let mut servers = independent(3);
    let locker = Locker::new(redlock(&servers));
    let _held = granted(locker.acquire("held").ttl(LONG).await);
    let list = async || {
        let (mut found, mut query) = (false, ListQuery { prefix: String::new(), cursor: None, limit: 100 });
        loop {
            let page = locker.list(&query).await?;
            found |= page.leases.iter().any(|lease| lease.name.as_str() == "held");
            match page.cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => return Ok::<bool, StoreError>(found),
            }
        }
    };
    assert!(list().await.unwrap());
    servers[0].kill9();
    assert!(list().await.unwrap(), "the others have it");
    servers[1].kill9();
    assert!(matches!(list().await, Err(StoreError::Unknown(_))));
    servers[2].kill9();
    assert!(
        matches!(list().await, Err(StoreError::Unknown(_))),
        "nobody is left to say that there is nothing"
    );
}
