//! Being asked to stop: the first signal drains, the second ends at once.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled by Ctrl-C or SIGTERM.
pub(crate) fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let token = CancellationToken::new();
    let stop = token.clone();
    // The task lives as long as the process: it only waits for signals.
    tokio::spawn(async move {
        for first in [true, false] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if !first {
                eprintln!("leasehold: ended at once by a second signal");
                std::process::exit(130);
            }
            stop.cancel();
        }
    });
    Ok(token)
}
