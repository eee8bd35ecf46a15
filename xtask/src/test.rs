//! `cargo xtask test`: everything that can be checked by running it.

use std::time::Instant;

use anyhow::Result;

use crate::packages;
use crate::step::{cargo, on_path, run};

/// Installs what is missing, then runs all tests; `arguments` go to the runner.
pub(crate) fn all(arguments: &[String]) -> Result<()> {
    let begun = Instant::now();
    packages::ensure()?;
    if on_path("cargo-nextest") {
        let mut tests = cargo(["nextest", "run", "--workspace", "--locked"]);
        // One more than there are cores: a test of locks waits more than it computes.
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        run(tests.arg(format!("--test-threads={}", cores + 1)).args(arguments))?;
    } else {
        // `--tests` leaves out the doc tests, which are the next step, and the examples, which a test runs. One test at a
        // time, because clusters of servers must not be started beside each other, see .config/nextest.toml.
        run(&mut cargo(["build", "--workspace", "--examples", "--locked"]))?;
        let mut tests = cargo(["test", "--workspace", "--tests", "--no-fail-fast", "--locked"]);
        run(tests.args(arguments).env("RUST_TEST_THREADS", "1"))?;
    }
    run(&mut cargo(["test", "--workspace", "--doc", "--locked"]))?;
    // Faults built in on purpose: a suite that no longer finds them has gone blind.
    run(&mut cargo([
        "test",
        "--package",
        "leasehold",
        "--features",
        "planted-bugs",
        "--test",
        "planted_bugs",
        "--locked",
    ]))?;
    // The build for those who do without encrypted connections to lock stores.
    run(&mut cargo([
        "test",
        "--package",
        "leasehold",
        "--no-default-features",
        "--test",
        "without_tls",
        "--locked",
    ]))?;
    println!("\nall tests passed in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}
