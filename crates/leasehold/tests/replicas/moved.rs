//! A shop on one machine is moved into a ledger while it sells.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_testkit::Launch;
use leasehold_testkit::servers::Postgres;

use crate::replicas::Replicas;
use crate::round::Round;

/// The buyers go on with what they hold and what they asked for, at the same address: they notice a pause.
#[tokio::test(flavor = "multi_thread")]
async fn a_data_file_is_moved_while_its_server_sells() {
    let binary = Path::new(env!("CARGO_BIN_EXE_leasehold"));
    let (folder, ledger) = (tempfile::tempdir().unwrap(), Postgres::start());
    let (data, key) = (folder.path().join("shop.db"), folder.path().join("leasehold.key"));
    let mut alone = Launch::new(binary, &data).start();
    // Twice, because buyers with one address give up when nobody is there.
    let round = Round::begin_hurried_at("moved", vec![alone.address().to_owned(); 2]).await;

    let mut migrating = Command::new(binary)
        .arg("migrate")
        .arg(&data)
        .args(["--to", &ledger.url(), "--wait", "60s", "--secret-key-file"])
        .arg(&key)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let before = round.moment();
    tokio::time::sleep(Duration::from_secs(1)).await;
    round.something_is_done_since(before, "the server does not sell meanwhile").await;
    assert!(migrating.try_wait().unwrap().is_none(), "it does not wait for the server");
    round.moment();
    assert!(alone.sigterm_and_wait().success(), "{}", alone.log());
    let stopped = Instant::now();
    let moved = migrating.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&moved.stdout);
    assert!(moved.status.success() && said.contains("is in the ledger"), "{said}");

    let server = Launch::without_file(binary)
        .args(&["--ledger", &ledger.url(), "--secret-key-file", &key.display().to_string()])
        .at(alone.address());
    let replicas = Replicas::of(vec![server]);
    println!("the shop was away for {:?}: {said}", stopped.elapsed());
    round.judge(stopped, &replicas, &ledger).await;
}
