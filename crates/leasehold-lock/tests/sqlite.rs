//! The promises of a lock store, kept in a SQLite file.

use std::sync::Barrier;

use leasehold_lock::Sqlite;

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
