//! The promises of a lock store, kept in a SQLite file.

use leasehold_lock::Sqlite;

leasehold_testkit::lock_suite!(async {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(folder.path().join("locks.db")).unwrap();
    (folder, store)
});
