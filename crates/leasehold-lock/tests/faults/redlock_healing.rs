//! Redlock and servers that lack a lock which most of the others have: it is set again there, and only while it is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold_lock::backend::{Attempt, Backend, Held, Order, Request};
use leasehold_lock::{Acquired, Guard, LeaseState, LockError, Locker, Names, Owner, Redlock, Ttl};
use leasehold_testkit::servers::{RedisServer, independent};

use crate::support::{LONG, PATIENCE, granted, in_time, owner_on, redlock, take, until};

const TTL: Duration = Duration::from_secs(6);

fn has_it(server: &RedisServer, guard: &Guard) -> bool {
    owner_on(server, "job").as_deref() == Some(guard.owner().as_str())
}

/// Five servers, all of which may vote as far as this store knows.
async fn all_may_vote(servers: &[RedisServer]) -> Redlock {
    let store = redlock(servers);
    let (names, ttl) = (Names::try_from("first").unwrap(), Ttl::new(LONG).unwrap());
    until("all vote", async || {
        let owner = Owner::random(None);
        let request = Request { names: &names, owner: &owner, ttl, order: Order::Any };
        let granted = matches!(store.try_acquire(&request).await, Ok(Attempt::Granted(_)));
        tokio::time::sleep(Duration::from_millis(20)).await;
        let voted = servers.iter().filter(|server| owner_on(server, "first").is_some()).count();
        let held = Held { names: names.clone(), owner, ttl, order: Order::Any };
        let _ = store.release(&held).await;
        granted && voted == servers.len()
    })
    .await;
    store
}

/// Held on exactly the first three of five, whose last two are back.
async fn on_three_of_five(servers: &mut [RedisServer]) -> (Locker, Guard) {
    let locker = Locker::new(all_may_vote(servers).await);
    servers[3].kill9();
    servers[4].kill9();
    let guard = granted(locker.acquire("job").ttl(TTL).wait(PATIENCE).await);
    // The other two are down, so this is exactly a majority. Once they are back, a renewal may come at any time.
    assert!(servers[..3].iter().all(|server| has_it(server, &guard)), "held on those that are left");
    servers[3].restart();
    servers[4].restart();
    (locker, guard)
}

/// Somebody who asks for the lock all the time.
struct Rival {
    is_over: Arc<AtomicBool>,
    refused: Arc<AtomicU32>,
    asking: tokio::task::JoinHandle<()>,
}

impl Rival {
    fn start(servers: &[RedisServer]) -> Self {
        let locker = Locker::new(redlock(servers));
        let (is_over, refused) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let (ends, counts) = (is_over.clone(), refused.clone());
        let asking = tokio::spawn(async move {
            while !ends.load(Ordering::SeqCst) {
                match locker.acquire("job").no_wait().await {
                    Ok(Acquired::Busy(_)) | Err(LockError::Unknown { .. }) => {
                        counts.fetch_add(1, Ordering::SeqCst);
                    }
                    other => panic!("the first holder has it: {other:?}"),
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        Self { is_over, refused, asking }
    }

    /// It was refused, and never anything else.
    async fn was_refused(self) {
        self.is_over.store(true, Ordering::SeqCst);
        in_time("the rival ends", self.asking).await.expect("it was refused all the time");
        assert!(self.refused.load(Ordering::SeqCst) > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_07_lock_is_set_again_on_servers_that_came_back_and_outlives_those_it_began_on() {
    let mut servers = independent(5);
    let (_locker, guard) = on_three_of_five(&mut servers).await;
    let rival = Rival::start(&servers);
    until("it is set on all", async || servers.iter().all(|server| has_it(server, &guard))).await;
    servers[0].kill9();
    servers[1].kill9();
    // Longer than its length, so the three that are left have renewed it.
    tokio::time::sleep(TTL + TTL / 2).await;
    assert_eq!(guard.state(), LeaseState::Held);
    rival.was_refused().await;
    assert!(servers[2..].iter().all(|server| has_it(server, &guard)));
    guard.release().await.unwrap();
    for server in &servers[2..] {
        until("it is given back", async || owner_on(server, "job").is_none()).await;
    }
}

/// What was held on exactly a majority, and was healed, survives that one of these forgets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_07_nobody_else_wins_when_one_of_a_majority_restarts_empty_after_healing() {
    let mut servers = independent(5);
    let (_locker, guard) = on_three_of_five(&mut servers).await;
    until("it is set on all", async || servers.iter().all(|server| has_it(server, &guard))).await;
    let rival = Rival::start(&servers);
    servers[2].kill9();
    servers[2].restart_empty();
    // It is admitted after its quarantine, and then has the lock again.
    until("it is set there, too", async || has_it(&servers[2], &guard)).await;
    assert_eq!(guard.state(), LeaseState::Held);
    rival.was_refused().await;
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_07_nothing_is_set_on_a_server_in_quarantine() {
    const LOOK: &str = "return {redis.call('HGET', 'leasehold:redlock', 'status') or '', \
                        redis.call('GET', 'lock:job') or ''}";
    let servers = independent(5);
    let locker = Locker::new(all_may_vote(&servers).await);
    let guard = granted(locker.acquire("job").ttl(Duration::from_secs(3)).wait(PATIENCE).await);
    let () = servers[4].command(&["FLUSHALL"]);
    let mut quarantined = 0;
    in_time("it is set again", async {
        loop {
            let (status, value): (String, String) = servers[4].command(&["EVAL", LOOK, "0"]);
            match (status.as_str(), value.is_empty()) {
                ("admitted", true) => {}
                ("admitted", false) => break,
                (_, true) => quarantined += 1,
                (status, false) => panic!("set on a server that is {status:?}: {value}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(quarantined > 0, "it was out for a while");
    assert_eq!(guard.state(), LeaseState::Held);
}

/// Pitfall 8: what most servers have lost is not set again on any.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_08_lock_that_most_servers_have_lost_is_not_set_again() {
    let servers = independent(5);
    let locker = Locker::new(all_may_vote(&servers).await);
    let guard = granted(locker.acquire("job").ttl(Duration::from_secs(3)).wait(PATIENCE).await);
    until("it is on all", async || servers.iter().all(|server| has_it(server, &guard))).await;
    for server in &servers[..3] {
        let _: u32 = server.command(&["DEL", "lock:job"]);
    }
    in_time("the holder is told", guard.lost()).await;
    for server in &servers[..3] {
        assert_eq!(owner_on(server, "job"), None);
    }
    drop(guard);
    take(&locker, "job").await;
}

/// Pitfall 20: a release that comes at any moment of a renewal leaves nothing that is set again after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_20_released_lock_is_not_set_again_by_a_renewal() {
    const ROUNDS: u64 = 400;
    let servers = independent(5);
    let store = Arc::new(all_may_vote(&servers).await);
    let ttl = Ttl::new(LONG).unwrap();
    for round in 0..ROUNDS {
        let (names, owner) = (Names::try_from(format!("job-{round}")).unwrap(), Owner::random(None));
        let request = Request { names: &names, owner: &owner, ttl, order: Order::Any };
        until("it is granted", async || matches!(store.try_acquire(&request).await, Ok(Attempt::Granted(_))))
            .await;
        for server in &servers[3..] {
            let _: u32 = server.command(&["DEL", &format!("lock:job-{round}")]);
        }
        let held = Held { names: names.clone(), owner: owner.clone(), ttl, order: Order::Any };
        let renewing = tokio::spawn({
            let (store, held) = (store.clone(), held.clone());
            async move { store.renew(&[held]).await }
        });
        // From right away to when all is set again.
        tokio::time::sleep(Duration::from_micros(round % 40 * 50)).await;
        let _ = store.release(&held).await;
        renewing.await.unwrap();
    }
    until("all releases are answered", async || !store.is_settling()).await;
    // What was set again would stay for as long as the lease.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    for server in &servers {
        assert_eq!(server.command::<Vec<String>>(&["KEYS", "lock:*"]), [""; 0]);
    }
}
