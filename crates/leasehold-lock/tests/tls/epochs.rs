//! Epochs from a PostgreSQL that takes nothing but TLS.

use std::sync::Arc;
use std::time::Duration;

use leasehold_lock::doctor::{Level, examine};
use leasehold_lock::{Acquired, Epochs, LockError, Locker, Redis, StoreOptions};
use leasehold_testkit::lock_suite::{Store, keep_one_of_each_kind};
use leasehold_testkit::servers::{Authority, Postgres, RedisServer};

use crate::support::{levels, refused, told};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn epochs_by_tls_keep_the_promises_of_a_fence() {
    let authority = Authority::new();
    let (redis, postgres) = (RedisServer::start(), Postgres::options().tls(&authority.certificate()).start());
    let ca_file = authority.ca_file().display().to_string();
    for mode in ["require", "verify-full", "prefer"] {
        let epochs = format!("{}?sslmode={mode}&sslrootcert={ca_file}", postgres.url());
        let options = StoreOptions { epochs: Some(epochs.clone()), ..StoreOptions::default() };
        let report = examine(&redis.url(), &options).await.unwrap();
        assert_eq!(levels(&report, "epochs-encryption"), [Level::Ok], "{mode}: {report:#?}");
        // Each mode must fetch an epoch, and not live on that of the mode before.
        let () = redis.command(&["FLUSHALL"]);
        let store = Redis::open(&redis.url()).unwrap().with_epochs(Epochs::open(&epochs).unwrap());
        let acquired = Locker::new(store).acquire("job").await;
        assert!(matches!(acquired, Ok(Acquired::Granted(_))), "{mode}: {acquired:?}");
    }
    let epochs = format!("{}?sslmode=require&sslrootcert={ca_file}", postgres.url());
    let store = Redis::open(&redis.url()).unwrap().with_claim_time(Duration::from_secs(1));
    let store: Store = Arc::new(store.with_epochs(Epochs::open(&epochs).unwrap()));
    keep_one_of_each_kind(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn epochs_of_a_server_that_cannot_show_who_it_is_are_refused() {
    let (theirs, ours) = (Authority::new(), Authority::new());
    let (redis, unknown) = (RedisServer::start(), Postgres::options().tls(&theirs.certificate()).start());
    let elsewhere = ours.certificate_for("elsewhere.example");
    let elsewhere = Postgres::options().tls(&elsewhere).start();
    let ca_file = ours.ca_file().display().to_string();
    for mode in ["require", "prefer"] {
        for (postgres, reason) in [(&unknown, "UnknownIssuer"), (&elsewhere, "not valid for name")] {
            let epochs = format!("{}?sslmode={mode}&sslrootcert={ca_file}", postgres.url());
            let error = refused(&redis.url(), Some(&epochs)).await;
            assert!(matches!(error, LockError::Refused { .. }), "{mode}: {error:?}");
            assert!(told(&error).contains(reason), "{mode}: {}", told(&error));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn epochs_are_not_fetched_in_the_clear_when_tls_is_required() {
    let (redis, plain) = (RedisServer::start(), Postgres::start());
    let epochs = format!("{}?sslmode=require", plain.url());
    let error = refused(&redis.url(), Some(&epochs)).await;
    assert!(told(&error).contains("does not support TLS"), "{}", told(&error));
    let authority = Authority::new();
    let strict = Postgres::options().tls(&authority.certificate()).start();
    let error = refused(&redis.url(), Some(&format!("{}?sslmode=disable", strict.url()))).await;
    assert!(told(&error).contains("pg_hba"), "{}", told(&error));
}
