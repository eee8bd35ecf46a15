//! A wall clock that a test can set forward and back while a server runs by it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use super::spawner;

const SHIM: &str = include_str!("clock_shift.c");

/// The wall clock of the servers that were started with it; their monotonic clock is left alone.
///
/// ```no_run
/// use leasehold_testkit::servers::{ClockShift, RedisServer};
///
/// let clock = ClockShift::new();
/// let redis = RedisServer::options().clock(&clock).start();
/// clock.set_ms(60_000);
/// ```
#[derive(Debug, Clone)]
pub struct ClockShift {
    /// The offset that the servers read, with the library that makes them do so beside it.
    offset: Arc<File>,
    folder: Arc<tempfile::TempDir>,
}

impl ClockShift {
    /// A clock that shows the right time.
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("leasehold-clock-").tempdir();
        let folder = Arc::new(folder.expect("a temporary folder for a clock"));
        // The server may run as another user.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("the folder is ours");
        compile(folder.path().join("clock_shift.c"), folder.path().join("clock_shift.so"));
        let offset = File::create(folder.path().join("offset")).expect("a file for the offset");
        let clock = Self { offset: Arc::new(offset), folder };
        clock.set_ms(0);
        clock
    }

    /// Sets the clock this far from the right time: `60_000` is a minute ahead, `-3_600_000` an hour behind.
    pub fn set_ms(&self, offset_ms: i64) {
        self.offset.write_all_at(&offset_ms.to_ne_bytes(), 0).expect("the offset can be written");
    }

    /// Makes a program go by this clock.
    pub(crate) fn set_for(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.folder.path().join("clock_shift.so"));
        command.env("CLOCK_SHIFT_FILE", self.folder.path().join("offset"));
    }
}

impl Default for ClockShift {
    fn default() -> Self {
        Self::new()
    }
}

fn compile(source: PathBuf, library: PathBuf) {
    fs::write(&source, SHIM).expect("the source can be written");
    let mut compiler = Command::new(spawner::on_path("cc", "gcc libc6-dev"));
    compiler.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).arg(library).arg(source);
    let output = compiler.output().unwrap_or_else(|error| panic!("cannot run {compiler:?}: {error}"));
    assert!(output.status.success(), "{compiler:?}\n{}", String::from_utf8_lossy(&output.stderr));
}
