//! The promises of a lock store, kept in a SQLite file.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use leasehold_lock::{LockName, Locker, Sqlite};

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
