//! Listens to what the database says of releases, and rings.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::database::{Database, failure};
use crate::bells::Bells;
use crate::error::StoreError;

/// How long a waiter waits for the ear to open. After that it looks for itself from time to time, as it does anyway.
const OPEN_TIME_MAX: Duration = Duration::from_secs(1);
/// How long to wait before a connection that broke is made again.
const RECONNECT_AFTER: Duration = Duration::from_millis(200);

/// A connection that listens. It ends with this.
#[derive(Debug)]
pub(super) struct Listener {
    open: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Listener {
    pub(super) fn start(database: Database, bells: Bells) -> Self {
        let (opened, open) = watch::channel(false);
        let task = tokio::spawn(async move {
            for connection in 0u64.. {
                let is_first = connection == 0;
                if let Err(error) = listen(&database, &bells, &opened, is_first).await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "cannot be told of releases");
                }
                opened.send_replace(false);
                tokio::time::sleep(RECONNECT_AFTER).await;
            }
        });
        Self { open, task }
    }

    /// Returns when it listens, or when that takes too long.
    pub(super) async fn is_listening(&self) {
        let mut open = self.open.clone();
        let _ = tokio::time::timeout(OPEN_TIME_MAX, open.wait_for(|open| *open)).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Rings until the connection ends.
async fn listen(
    database: &Database,
    bells: &Bells,
    opened: &watch::Sender<bool>,
    is_first: bool,
) -> Result<(), StoreError> {
    let (sender, mut said) = mpsc::unbounded_channel();
    let client = database.connect_listening(sender).await.map_err(failure)?;
    let listened = client.batch_execute("SET client_min_messages = warning; LISTEN leasehold_locks").await;
    listened.map_err(|error| StoreError::Unknown(error.into()))?;
    opened.send_replace(true);
    // Something may have been said while nobody listened. Whoever waited for the first connection looks again anyway.
    if !is_first {
        bells.ring_all();
    }
    while let Some(what) = said.recv().await {
        bells.ring(&what);
    }
    Ok(())
}
