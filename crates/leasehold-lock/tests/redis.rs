//! The promises of a lock store, kept on one real Redis server.

use std::time::Duration;

use leasehold_lock::backend::Released;
use leasehold_lock::{Acquired, LockError, Locker, Redis, Redlock};
use leasehold_testkit::servers::RedisServer;

leasehold_testkit::lock_suite!(async {
    let server = RedisServer::start();
    let store = Redis::open(&server.url()).unwrap().with_claim_time(Duration::from_secs(1));
    (server, store)
});

#[tokio::test]
async fn a_prefix_under_which_a_lock_could_be_one_of_our_own_keys_is_refused() {
    let server = RedisServer::start();
    let redlock = server.url().replace("redis://", "redlock://");
    for prefix in ["", "lease", "leasehold:", "leasehold:locks:"] {
        let redis = Locker::new(Redis::open(&server.url()).unwrap().with_prefix(prefix));
        let redlock = Locker::new(Redlock::open(&redlock).unwrap().with_prefix(prefix));
        for locker in [redis, redlock] {
            let refused = locker.acquire("redlock").await;
            assert!(matches!(refused, Err(LockError::Refused { .. })), "{prefix:?}: {refused:?}");
        }
    }
    assert_eq!(server.command::<u64>(&["DBSIZE"]), 0);
}

/// What many ask at the same time goes to the server together, and is decided for each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_no_lock_is_refused_and_those_who_asked_with_it_are_not() {
    let server = RedisServer::start();
    let () = server.command(&["HSET", "lock:hash", "field", "value"]);
    let locker = Locker::new(Redis::open(&server.url()).unwrap());
    for _ in 0..20 {
        let asks = (0..50).map(|number| {
            let name = if number == 25 { "hash".to_owned() } else { format!("job-{number}") };
            tokio::spawn(locker.acquire(name).no_wait().into_future())
        });
        for (number, ask) in asks.collect::<Vec<_>>().into_iter().enumerate() {
            match ask.await.unwrap() {
                Ok(Acquired::Granted(guard)) => {
                    assert_eq!(guard.release().await.unwrap(), Released::Released);
                    assert_ne!(number, 25);
                }
                Err(LockError::Refused { .. }) => assert_eq!(number, 25),
                other => panic!("{number}: {other:?}"),
            }
        }
    }
    assert_eq!(server.command::<u64>(&["DBSIZE"]), 1);
}
