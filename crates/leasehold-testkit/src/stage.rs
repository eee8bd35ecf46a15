//! One server on one data file with one history: what nearly every end-to-end test begins with.

use std::path::{Path, PathBuf};

use crate::checker::{Checked, check};
use crate::desk::Desk;
use crate::history::History;
use crate::launch::Launch;
use crate::process::ServerProcess;
use crate::read_back::read_back;

/// The data file's name.
const DATA: &str = "leasehold.db";

/// A running server, its data file in a directory of its own, and the history of all its clients.
#[derive(Debug)]
pub struct Stage {
    /// The running server.
    pub server: ServerProcess,
    /// What its clients did.
    pub history: History,
    launch: Launch,
    directory: tempfile::TempDir,
}

impl Stage {
    /// Starts `binary` on a new data file.
    pub fn open(binary: &Path) -> Self {
        Self::open_with(binary, |launch| launch)
    }

    /// The same, where `prepare` may add arguments and variables.
    pub fn open_with(binary: &Path, prepare: impl FnOnce(Launch) -> Launch) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory for the data file");
        let launch = prepare(Launch::new(binary, &directory.path().join(DATA)));
        Self { server: launch.start(), history: History::new(), launch, directory }
    }

    /// The data file.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join(DATA)
    }

    /// How the server is started, for a start with something added.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Where the server listens now; another port after each start.
    pub fn address(&self) -> &str {
        self.server.address()
    }

    /// A desk at the running server.
    pub fn desk(&self, number: usize) -> Desk {
        Desk::new(self.address(), number, &self.history)
    }

    /// Starts the server again on the same data file, after it ended.
    pub fn restart(&mut self) {
        assert!(!self.server.is_running(), "the server must end before it is started again");
        self.server = self.launch.start();
    }

    /// Reads everything back and judges the whole history.
    pub async fn judge(&self) -> Checked {
        read_back(self.address(), &self.history).await;
        check(&self.history)
    }
}
