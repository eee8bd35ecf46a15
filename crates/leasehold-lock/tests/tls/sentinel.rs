//! Sentinels and their master by TLS, each with a password of their own.

use std::sync::Arc;
use std::time::Duration;

use leasehold_lock::doctor::{Level, examine};
use leasehold_lock::{LockError, Redis, StoreOptions};
use leasehold_testkit::lock_suite::{Store, keep_one_of_each_kind};
use leasehold_testkit::servers::{Authority, RedisSentinel};

use crate::support::{levels, refused, told, trusting};

const OF_MASTER: &str = "masters-word";
const OF_SENTINELS: &str = "watchword+";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_with_passwords_keep_the_promises_by_tls() {
    let authority = Authority::new();
    let options = RedisSentinel::options().tls(&authority.certificate());
    let sentinel = options.passwords(OF_MASTER, OF_SENTINELS).start();
    let (sentinels, name) = (sentinel.sentinel_tls_addresses().join(","), sentinel.master_name());
    let trust = trusting(&authority.ca_file());
    let url = |of_master: &str, of_sentinels: &str| {
        format!("rediss-sentinel://:{of_master}@{sentinels}/{name}?sentinel_password={of_sentinels}&{trust}")
    };

    let redis = Redis::open(&url(OF_MASTER, OF_SENTINELS)).unwrap();
    assert!(!format!("{redis:?}").contains(OF_MASTER) && !format!("{redis:?}").contains(OF_SENTINELS));
    let store: Store = Arc::new(redis.with_claim_time(Duration::from_secs(1)));
    keep_one_of_each_kind(&store).await;

    let report = examine(&url(OF_MASTER, OF_SENTINELS), &StoreOptions::default()).await.unwrap();
    assert_eq!(levels(&report, "encryption"), [Level::Ok; 4], "three Sentinels and the master: {report:#?}");
    assert!(!format!("{report:?}").contains(OF_SENTINELS) && !format!("{report:?}").contains(OF_MASTER));

    for (of_master, of_sentinels) in [(OF_MASTER, OF_MASTER), (OF_SENTINELS, OF_SENTINELS)] {
        let error = refused(&url(of_master, of_sentinels), None).await;
        assert!(matches!(error, LockError::Refused { .. }), "{error:?}");
        let told = told(&error);
        assert!(!told.contains(OF_MASTER) && !told.contains(OF_SENTINELS), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_with_passwords_are_asked_in_the_clear_too() {
    let sentinel = RedisSentinel::options().passwords(OF_MASTER, OF_SENTINELS).start();
    let sentinels = sentinel.sentinel_addresses().join(",");
    let name = sentinel.master_name();
    let url = format!("redis-sentinel://:{OF_MASTER}@{sentinels}/{name}?sentinel_password={OF_SENTINELS}");
    let redis = Redis::open(&url).unwrap().with_claim_time(Duration::from_secs(1));
    let store: Store = Arc::new(redis);
    keep_one_of_each_kind(&store).await;
    let report = examine(&url, &StoreOptions::default()).await.unwrap();
    assert_eq!(levels(&report, "encryption"), [Level::Ok; 4], "all on this machine: {report:#?}");
}
