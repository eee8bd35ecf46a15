//! `cargo xtask ci`: what must pass before a change goes in. There is no other list.

use std::time::Instant;

use anyhow::Result;

use crate::k6::{self, Target};
use crate::step::{cargo, on_path, run};
use crate::{demo, test};

/// Runs every check, the cheap ones first, and stops at the first that fails.
pub(crate) fn all() -> Result<()> {
    let begun = Instant::now();
    run(&mut cargo(["fmt", "--all", "--", "--check"]))?;
    run(&mut cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    // What those get who want no more than the file: features only add.
    run(&mut cargo(["clippy", "--package", "leasehold-engine", "--locked", "--", "-D", "warnings"]))?;
    run(cargo(["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"])
        .env("RUSTDOCFLAGS", "-D warnings"))?;
    dependencies()?;
    test::all(&[])?;
    demo::check()?;
    k6::three_seats(Target::Alone, &[])?;
    k6::three_seats(Target::Cluster, &[])?;
    println!("\nci passed in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Licences, sources and doubled versions of what we depend on. Known vulnerabilities
/// (`cargo deny check advisories`) need the network and are checked before a release.
fn dependencies() -> Result<()> {
    if on_path("cargo-deny") {
        return run(&mut cargo(["deny", "--locked", "check", "bans", "licenses", "sources"]));
    }
    println!("\nnot run: cargo deny check bans licenses sources (cargo install --locked cargo-deny)");
    Ok(())
}
