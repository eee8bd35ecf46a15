//! The promises of a lock store, kept on one real Redis server.

use std::time::Duration;

use leasehold_lock::{LockError, Locker, Redis, Redlock};
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
