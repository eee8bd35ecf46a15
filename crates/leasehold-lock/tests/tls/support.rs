//! What the tests of TLS share.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use leasehold_lock::doctor::{Level, Report};
use leasehold_lock::{LockError, Locker, Settings, StoreOptions, open};

/// How long anything may take that is not a matter of waiting.
const PATIENCE: Duration = Duration::from_secs(20);

/// The parameter of a Redis URL that has it trust an authority.
pub(crate) fn trusting(ca_file: &Path) -> String {
    format!("ca_file={}", ca_file.display())
}

/// Asks for a lock where it must not be had, and returns why.
pub(crate) async fn refused(store: &str, epochs: Option<&str>) -> LockError {
    let options = StoreOptions { epochs: epochs.map(str::to_owned), ..StoreOptions::default() };
    let locker = Locker::with_settings(open(store, &options).unwrap(), Settings::default());
    let acquiring = tokio::time::timeout(PATIENCE, async { locker.acquire("job").no_wait().await });
    match acquiring.await {
        Ok(acquired) => acquired.expect_err("the server must not be believed"),
        Err(_) => panic!("not within {PATIENCE:?}: an answer of {store}"),
    }
}

/// An error with all its reasons, as a log would have it.
pub(crate) fn told(error: &LockError) -> String {
    let mut text = format!("{error:?} {error}");
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// The levels of all findings on a topic.
#[track_caller]
pub(crate) fn levels(report: &Report, topic: &str) -> Vec<Level> {
    assert!(report.is_reachable, "{report:#?}");
    let on_topic = report.findings.iter().filter(|finding| finding.topic == topic);
    on_topic.map(|finding| finding.level).collect()
}
