//! Gets the libraries of other languages from their registries, once, into the build folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

const REDIS_PY: &str = "redis==8.1.0";
const NODE_PACKAGES: [&str; 2] = ["redlock@5.0.0-beta.2", "ioredis@5"];

/// A Python interpreter that has redis-py.
pub(crate) fn redis_py() -> PathBuf {
    let folder = once("redis-py", REDIS_PY, |folder| {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder), "python3-venv");
        let pip = folder.join("bin/pip");
        run(
            Command::new(pip).args(["install", "--quiet", "--disable-pip-version-check", REDIS_PY]),
            "network",
        );
    });
    folder.join("bin/python3")
}

/// A folder in which Node finds node-redlock and ioredis.
pub(crate) fn node_redlock() -> PathBuf {
    once("node-redlock", &NODE_PACKAGES.join(" "), |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
            .arg(folder)
            .args(NODE_PACKAGES);
        run(&mut npm, "nodejs npm");
    })
}

/// Fills a folder unless it was filled with the same before. Other tests wait for it.
fn once(name: &str, wanted: &str, fill: impl FnOnce(&Path)) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers").join(name);
    fs::create_dir_all(folder.parent().expect("a folder has a parent"))
        .expect("the build folder can be written");
    let lock = File::create(folder.with_extension("lock")).expect("the build folder can be written");
    lock.lock().expect("a file can be locked");
    let done = folder.join("installed");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return folder;
    }
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the build folder can be written");
    fill(&folder);
    fs::write(&done, wanted).expect("the build folder can be written");
    folder
}

fn run(command: &mut Command, needs: &str) {
    let shown = format!("{command:?}");
    let output = command.output().unwrap_or_else(|error| {
        panic!(
            "cannot run {shown}: {error}; `cargo xtask test` installs {needs}, or: apt-get install {needs}"
        )
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}: {}; it needs {needs}\n{said}", output.status);
}
