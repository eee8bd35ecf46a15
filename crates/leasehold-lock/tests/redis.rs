//! The promises of a lock store, kept on one real Redis server.

use std::time::Duration;

use leasehold_lock::Redis;
use leasehold_testkit::servers::RedisServer;

leasehold_testkit::lock_suite!(async {
    let server = RedisServer::start();
    let store = Redis::open(&server.url()).unwrap().with_claim_time(Duration::from_secs(1));
    (server, store)
});
