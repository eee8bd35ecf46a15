//! The ledger over encrypted connections, on real servers with certificates made for the test.

use leasehold_engine::*;
use leasehold_testkit::engine_suite::*;
use leasehold_testkit::servers::{Authority, Postgres};

/// A data file with an event in it.
async fn data_file(folder: &tempfile::TempDir) -> DataFile {
    let path = folder.path().join("shop.db");
    let engine = EmbeddedEngine::open(EmbeddedOptions::new(&path)).unwrap();
    create_event(&engine, 1, 3).await;
    engine.close().await;
    DataFile::open(&path).unwrap()
}

/// Why a ledger cannot be used: the same for a server and for a check.
async fn refused(url: &str) -> String {
    let opened = ClusterEngine::open(ClusterOptions::new(url, SecretKey::random())).await;
    let said = opened.expect_err("the ledger must not be believed").to_string();
    assert_eq!(check_ledger(url).await.expect_err("nor checked").to_string(), said);
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_takes_nothing_but_tls_is_moved_into_served_and_checked() {
    let authority = Authority::new();
    let server = Postgres::options().tls(&authority.certificate()).start();
    let url =
        |mode: &str| format!("{}?sslmode={mode}&sslrootcert={}", server.url(), authority.ca_file().display());
    let folder = tempfile::tempdir().unwrap();
    let file = data_file(&folder).await;
    let key = file.key().clone();
    file.move_into(&url("verify-full")).await.unwrap();
    for (seat, mode) in ["require", "prefer"].into_iter().enumerate() {
        let engine = ClusterEngine::open(ClusterOptions::new(url(mode), key.clone())).await.unwrap();
        let venue = engine.venue("gala").await.unwrap().expect("it was moved");
        let hold = held(engine.execute(hold_seat(&venue, seat as u32, LONG_MS)).await);
        engine.execute(confirm(&engine, hold.id, None)).await.unwrap();
        engine.close().await;
    }
    let report = check_ledger(&url("require")).await.unwrap();
    assert_eq!((report.problems, report.bookings), (vec![], 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_cannot_show_who_it_is_is_refused_and_the_reason_is_said() {
    let (theirs, ours) = (Authority::new(), Authority::new());
    let unknown = Postgres::options().tls(&theirs.certificate()).start();
    let elsewhere = Postgres::options().tls(&ours.certificate_for("elsewhere.example")).start();
    for mode in ["require", "prefer"] {
        for (server, reason) in [(&unknown, "UnknownIssuer"), (&elsewhere, "not valid for name")] {
            let url = format!("{}?sslmode={mode}&sslrootcert={}", server.url(), ours.ca_file().display());
            let said = refused(&url).await;
            assert!(said.contains(reason), "{mode}: {said}");
        }
    }
    let said = refused(&format!("{}?sslmode=disable", unknown.url())).await;
    assert!(said.contains("pg_hba"), "{said}");
    let said = refused("postgres://ada:hunter2@db/shop?sslmode=require&sslrootcert=/no/such/ca.pem").await;
    assert!(said.contains("/no/such/ca.pem: No such file") && !said.contains("hunter2"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_in_the_clear_is_refused_when_tls_is_required() {
    let plain = Postgres::start();
    let said = refused(&format!("{}?sslmode=require", plain.url())).await;
    assert!(said.contains("does not support TLS"), "{said}");
}
