//! What the tests need besides Rust, and how it gets there.
//!
//! Tests never skip themselves. What they need is installed before they run, or the run
//! fails and says what to install.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::step::{on_path, run};

/// A Debian package that some test cannot do without.
struct Package {
    /// The package's name.
    name: &'static str,
    /// The program whose presence proves that the package is there.
    program: &'static str,
    /// What it is needed for.
    why: &'static str,
}

const NEEDED: [Package; 1] = [Package {
    name: "strace",
    program: "strace",
    why: "shows that every answer is sent after the fsync it rests on, and makes writes fail on purpose",
}];

/// Makes sure that everything in the table is there; as root, by installing it.
pub(crate) fn ensure() -> Result<()> {
    let missing: Vec<&Package> = NEEDED.iter().filter(|package| !on_path(package.program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for package in &missing {
        println!("missing: {} ({})", package.name, package.why);
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    let install = format!("apt-get install -y --no-install-recommends {}", names.join(" "));
    if !on_path("apt-get") {
        bail!(
            "install these programs the way your system does it, then run this again: {}",
            names.join(", ")
        );
    }
    if !is_root()? {
        bail!(
            "the tests need packages that are not installed; as root, run\n\n  apt-get update && {install}\n"
        );
    }
    run(Command::new("apt-get").arg("update"))?;
    run(Command::new("apt-get")
        .args(["install", "-y", "--no-install-recommends"])
        .args(&names)
        .env("DEBIAN_FRONTEND", "noninteractive"))?;
    match missing.iter().find(|package| !on_path(package.program)) {
        None => Ok(()),
        Some(package) => {
            bail!("{} is installed, yet there is no `{}` on the path", package.name, package.program)
        }
    }
}

fn is_root() -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    if let Ok(me) = Path::new("/proc/self").metadata() {
        return Ok(me.uid() == 0);
    }
    let id = Command::new("id").arg("-u").stderr(Stdio::inherit()).output().context("cannot run `id -u`")?;
    Ok(id.stdout.trim_ascii() == b"0")
}
