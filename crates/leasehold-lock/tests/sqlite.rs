//! The promises of a lock store, kept in a SQLite file.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use leasehold_lock::backend::{Attempt, Backend, Order, Request};
use leasehold_lock::{LockName, Locker, Names, Owner, Sqlite, Ttl};

leasehold_testkit::lock_suite!(async {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(folder.path().join("locks.db")).unwrap();
    (folder, store)
});

/// As cron does it: all at the same second, and nobody has made the file yet.
#[test]
fn many_open_a_new_file_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let path = folder.path().join(format!("{round}.db"));
        let start = Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    Sqlite::open(&path).unwrap_or_else(|error| panic!("round {round}: {error:?}"));
                });
            }
        });
    }
}

/// A process that is asked something all the time still notices what others release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_process_is_told_of_releases_by_others() {
    const LONG: Duration = Duration::from_secs(60);
    let folder = tempfile::tempdir().unwrap();
    let [busy, other] = [(); 2].map(|()| Locker::new(Sqlite::open(folder.path().join("locks.db")).unwrap()));
    let asking = tokio::spawn({
        let busy = busy.clone();
        let name = LockName::parse("asked about").unwrap();
        async move {
            loop {
                busy.inspect(&name).await.unwrap();
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
        }
    });
    let mut waited = Vec::new();
    for round in 0..9 {
        let name = format!("job-{round}");
        let guard = other.acquire(&name).ttl(LONG).await.unwrap().granted().unwrap();
        let waiting = tokio::spawn(busy.acquire(&name).ttl(LONG).wait(LONG).into_future());
        tokio::time::sleep(Duration::from_millis(30)).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        drop(waiting.await.unwrap().unwrap().granted().unwrap());
        waited.push(released.elapsed());
    }
    asking.abort();
    waited.sort_unstable();
    // Whoever is not told looks for itself after half a second or more.
    assert!(waited[waited.len() / 2] < Duration::from_millis(300), "told after {waited:?}");
}

/// A lease begins when its transaction does, and not when that began to wait for another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_had_to_wait_for_the_file_has_its_whole_length() {
    const LENGTH: Duration = Duration::from_secs(2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let store = Sqlite::open(&path).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let asking = tokio::spawn(async move {
        let (names, owner) = (Names::try_from("job").unwrap(), Owner::random(None));
        let request =
            Request { names: &names, owner: &owner, ttl: Ttl::new(LENGTH).unwrap(), order: Order::Any };
        let attempt = store.try_acquire(&request).await.unwrap();
        (attempt, store.inspect(names.first()).await.unwrap())
    });
    tokio::time::sleep(LENGTH * 3 / 2).await;
    other.execute_batch("COMMIT").unwrap();
    let (attempt, view) = asking.await.unwrap();
    assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
    assert!(view.is_some(), "it was over when it was granted");
}
