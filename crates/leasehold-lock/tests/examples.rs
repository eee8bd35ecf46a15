//! Every example runs, and ends well: each checks for itself what it shows.
//!
//! The examples are built beside the tests (`cargo test` and `cargo nextest run` without a choice of targets do
//! that; `cargo build -p leasehold-lock --examples` does only that).

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn every_example_ends_well() {
    let names = names();
    assert!(names.len() >= 6, "the examples have moved: {names:?}");
    let failures: Vec<String> = names.iter().filter_map(|name| run(name).err()).collect();
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n"));
}

fn run(name: &str) -> Result<(), String> {
    let program = folder().join(name);
    if !program.is_file() {
        let build = "cargo build -p leasehold-lock --examples";
        return Err(format!("{name}: {} is missing; build it with `{build}`", program.display()));
    }
    let output = Command::new(&program).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{name}: {}\n{said}{complained}", output.status))
}

/// The examples that the repository has, built or not.
fn names() -> Vec<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let entries = std::fs::read_dir(sources).expect("the crate has examples");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let mut names: Vec<String> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        .map(|path| path.file_stem().expect("a file has a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// `target/debug/examples` for a test that is `target/debug/deps/examples-0123456789abcdef`.
fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let profile = test.parent().and_then(Path::parent).expect("it is two folders below the target");
    profile.join("examples")
}
