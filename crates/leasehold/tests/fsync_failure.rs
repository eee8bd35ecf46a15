//! The disk says no: the process stops by itself, acknowledges nothing more, and loses nothing it had acknowledged.

use std::path::Path;
use std::time::Duration;

use leasehold_testkit::{Random, Shop, Stage, SyncFault, Workload, fail_syncs};

/// After how many syncs of one thread they begin to fail.
const FAIL_FROM: [u32; 11] = [1, 2, 5, 6, 7, 8, 9, 10, 12, 30, 80];
/// Few, so that those in the commit that fails asked after the last good one.
const BUYERS: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_sync_the_process_stops_and_what_it_acknowledged_is_kept() {
    let seed = Random::seed_of_this_run("fsync_failure");
    let mut hit_at_work = 0;
    for fail_from in FAIL_FROM {
        let seen = fail_syncs_from(seed, fail_from).await;
        println!("failing from sync {fail_from}: ready {}, unanswered {}", seen.ready, seen.unanswered);
        hit_at_work += usize::from(seen.ready && seen.unanswered > 0);
    }
    assert!(hit_at_work >= 3, "only {hit_at_work} of {} faults hit requests in flight", FAIL_FROM.len());
}

async fn fail_syncs_from(seed: u64, fail_from: u32) -> SyncFault {
    let mut stage = Stage::open(Path::new(env!("CARGO_BIN_EXE_leasehold")));
    let mut workload = Workload::new(seed ^ u64::from(fail_from), BUYERS, Shop::small(), &stage.history);
    workload.open_shop(stage.address()).await;
    work(&mut workload, stage.address(), Duration::from_millis(100)).await;
    assert!(stage.server.sigterm_and_wait().success(), "SIGTERM is a clean end:\n{}", stage.server.log());

    let seen = fail_syncs(&stage, &mut workload, fail_from).await;
    assert_explained(seen.status.code(), &seen.log);
    assert!(seen.lies.is_empty(), "acknowledged, and not durable: {:#?}", seen.lies);

    stage.restart();
    work(&mut workload, stage.address(), Duration::from_millis(100)).await;
    let checked = stage.judge().await;
    checked.assert_clean();
    checked.assert_meaningful(20);
    seen
}

async fn work(workload: &mut Workload, address: &str, time: Duration) {
    workload.begin_round(address);
    tokio::time::sleep(time).await;
    workload.end_round().await;
}

fn assert_explained(code: Option<i32>, log: &str) {
    assert!(
        code.is_some_and(|code| code != 0),
        "it must end with an exit code of its own, not {code:?}:\n{log}"
    );
    assert!(!log.contains("panicked"), "a disk error is not a panic:\n{log}");
    let lower = log.to_lowercase();
    let said = ["i/o", "input/output", "fsync", "disk"].iter().any(|word| lower.contains(word));
    assert!(said, "the log does not say that the disk failed:\n{log}");
}
