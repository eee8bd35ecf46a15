//! The real locks of other languages and ours exclude each other on the same key.
//!
//! redis-py comes from PyPI and node-redlock from npm, the first time a test runs, into the build folder.
//! redsync would need Go, which the tests do not ask for; it uses the same key, value and scripts.

mod install;
mod peer;

use std::time::{Duration, Instant};

use leasehold_lock::backend::Released;
use leasehold_lock::{Acquired, Epochs, Guard, LockError, Locker, Redis, Redlock};
use leasehold_testkit::servers::{Postgres, RedisServer, independent};

use peer::Peer;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(400);
/// Long enough for a question of another language to be answered before, and short enough to wait for its end.
const ENDS_SOON: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(20);

#[track_caller]
fn granted(acquired: Result<Acquired, LockError>) -> Guard {
    match acquired {
        Ok(Acquired::Granted(guard)) => guard,
        other => panic!("expected a grant, not {other:?}"),
    }
}

/// Everything that two kinds of clients can do to each other on one name.
async fn exclude_each_other(locker: &Locker, peer: &mut Peer) {
    const KEY: &str = "lock:job";

    // Ours keeps theirs out, until it is released.
    let guard = granted(locker.acquire("job").ttl(LONG).no_wait().await);
    assert_eq!(peer.acquire(KEY, LONG), "no");
    assert_eq!(guard.release().await.unwrap(), Released::Released);

    // Theirs keeps ours out, with the time that is left, until it is released.
    assert_eq!(peer.acquire(KEY, LONG), "yes");
    let Ok(Acquired::Busy(busy)) = locker.acquire("job").no_wait().await else {
        panic!("theirs was ignored")
    };
    let remaining = busy.remaining.expect("their lock has an end, too");
    assert!(remaining > LONG / 2 && remaining <= LONG, "{remaining:?}");
    let shown = locker.inspect(&leasehold_lock::LockName::parse("job").unwrap()).await.unwrap();
    assert!(shown.is_some_and(|lease| lease.label.is_none()), "their token is opaque, and held all the same");
    assert_eq!(peer.release(KEY), "released");
    // Ours ends by itself, and theirs gets in, when it was kept out before. A machine that stands still for a moment may
    // let the lease end before theirs has asked at all; then there is another round.
    let guard = loop {
        let began = Instant::now();
        let guard = granted(locker.acquire("job").ttl(ENDS_SOON).no_renewal().no_wait().await);
        if peer.acquire(KEY, LONG) == "no" {
            break guard;
        }
        assert!(began.elapsed() >= ENDS_SOON, "theirs ignored ours");
        assert_eq!(peer.release(KEY), "released");
    };
    let until = Instant::now() + PATIENCE;
    while peer.acquire(KEY, SHORT) != "yes" {
        assert!(Instant::now() < until, "ours does not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld, "a late release spares theirs");

    // Theirs ends by itself, and ours, who waits, gets in; their late release spares ours.
    let guard = granted(locker.acquire("job").ttl(LONG).wait(PATIENCE).await);
    assert_eq!(peer.release(KEY), "refused");
    assert_eq!(peer.acquire(KEY, LONG), "no", "their late release has touched ours");
    assert!(guard.check().is_ok());

    // Ours waits while theirs releases, which tells nobody.
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert_eq!(peer.acquire(KEY, LONG), "yes");
    let waiting = tokio::spawn({
        let locker = locker.clone();
        async move { locker.acquire("job").ttl(LONG).wait(PATIENCE).await }
    });
    tokio::time::sleep(SHORT).await;
    assert_eq!(peer.release(KEY), "released");
    granted(waiting.await.unwrap()).release().await.unwrap();
}

/// One server that both use.
fn one() -> [RedisServer; 1] {
    [RedisServer::start()]
}

fn plain(servers: &[RedisServer]) -> Locker {
    Locker::new(Redis::open(&servers[0].url()).unwrap())
}

/// With fences, the value of the key has the fence behind the token.
fn fenced(servers: &[RedisServer], postgres: &Postgres) -> Locker {
    let epochs = Epochs::open(&postgres.url()).unwrap();
    Locker::new(Redis::open(&servers[0].url()).unwrap().with_epochs(epochs))
}

/// Our own Redlock uses the same key on every server.
fn redlock(servers: &[RedisServer]) -> Locker {
    let addresses: Vec<String> = servers.iter().map(RedisServer::address).collect();
    Locker::new(Redlock::open(&format!("redlock://{}", addresses.join(","))).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py_and_ours_exclude_each_other() {
    let server = one();
    exclude_each_other(&plain(&server), &mut Peer::redis_py(&server[0].url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py_and_ours_with_fences_exclude_each_other() {
    let (server, postgres) = (one(), Postgres::start());
    exclude_each_other(&fenced(&server, &postgres), &mut Peer::redis_py(&server[0].url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_redlock_and_ours_exclude_each_other() {
    let server = one();
    exclude_each_other(&plain(&server), &mut Peer::node_redlock(&server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_redlock_and_ours_with_fences_exclude_each_other() {
    let (server, postgres) = (one(), Postgres::start());
    exclude_each_other(&fenced(&server, &postgres), &mut Peer::node_redlock(&server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_redlock_and_our_redlock_exclude_each_other() {
    let servers = independent(1);
    exclude_each_other(&redlock(&servers), &mut Peer::node_redlock(&servers)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_redlock_and_our_redlock_over_three_servers_exclude_each_other() {
    let servers = independent(3);
    exclude_each_other(&redlock(&servers), &mut Peer::node_redlock(&servers)).await;
}
