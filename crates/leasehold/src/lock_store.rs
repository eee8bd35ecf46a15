//! Which lock store `run`, `lock` and `doctor` work on, and what they exit with.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_lock::{LockError, LockName, Locker, Names, OpenError, Settings, StoreError, StoreOptions};

use crate::logging::{self, LogFormat};
use crate::rush::duration;

/// The store cannot be used this way: a bad URL, missing rights, something it does not do.
pub(crate) const REFUSED: u8 = 96;
/// Somebody else has the lock, also after the wait.
pub(crate) const NOT_OBTAINED: u8 = 97;
/// The lease was lost, or is not the caller's.
pub(crate) const LOST: u8 = 98;
/// The store did not answer; what was asked may have taken effect.
pub(crate) const UNREACHABLE: u8 = 99;

/// Which store.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StoreArgs {
    /// The store: sqlite:FILE, redis://HOST, redis-cluster://A,B, redis-sentinel://A,B/MASTER, redlock://A,B,C,
    /// postgres://HOST/DATABASE; by TLS rediss://HOST, rediss-cluster://A,B, rediss-sentinel://A,B/MASTER,
    /// redlocks://A,B,C, postgres://HOST/DATABASE?sslmode=require
    /// [default: sqlite:$HOME/.local/state/leasehold/locks.db]
    #[arg(long, env = "LEASEHOLD_STORE", hide_env_values = true, value_name = "URL")]
    pub(crate) store: Option<String>,

    /// What stands before the names in the keys of Redis [default: lock:]
    #[arg(long = "key-prefix", env = "LEASEHOLD_KEY_PREFIX", value_name = "TEXT")]
    pub(crate) key_prefix: Option<String>,

    /// A PostgreSQL database that counts epochs, for fences on Redis: postgres://HOST/DATABASE?sslmode=require
    #[arg(long, env = "LEASEHOLD_EPOCHS", hide_env_values = true, value_name = "URL")]
    pub(crate) epochs: Option<String>,
}

/// A failure with the code that the command exits with.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) error: anyhow::Error,
}

impl StoreArgs {
    /// The URL, or the file of this user on this machine.
    pub(crate) fn url(&self) -> anyhow::Result<String> {
        match self.store.as_deref() {
            Some("") | None => Ok(format!("sqlite:{}", default_file()?.display())),
            Some(url) => Ok(url.to_owned()),
        }
    }

    pub(crate) fn options(&self) -> StoreOptions {
        StoreOptions { prefix: self.key_prefix.clone(), epochs: self.epochs.clone() }
    }

    /// Opens the store and starts the log, which says nothing unless something goes wrong.
    pub(crate) fn open(&self) -> Result<Locker, Failure> {
        let refused = |error| Failure { code: REFUSED, error };
        let filter = std::env::var("LEASEHOLD_LOG").ok();
        logging::start(Some(filter.as_deref().unwrap_or("warn")), Some(LogFormat::Text)).map_err(refused)?;
        let url = self.url().map_err(refused)?;
        if url.starts_with("memory:") {
            let why = "memory: is within one process, and so of no use between commands";
            return Err(refused(anyhow::anyhow!(why)));
        }
        let redis_alone = !url.starts_with("redis") && !url.starts_with("valkey");
        if self.epochs.is_some() && redis_alone {
            let why = "--epochs is for redis:// and redis-cluster://; this store makes its fences itself";
            return Err(refused(anyhow::anyhow!(why)));
        }
        let store = leasehold_lock::open(&url, &self.options()).map_err(Failure::from)?;
        Ok(Locker::with_settings(store, Settings::default()))
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self { code: REFUSED, error: error.into() }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let code = match &error {
            LockError::Lost { .. } => LOST,
            LockError::Unknown { .. } => UNREACHABLE,
            _ => REFUSED,
        };
        Self { code, error: error.into() }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Unknown(_) => UNREACHABLE,
            StoreError::Refused(_) => REFUSED,
        };
        Self { code, error: error.into() }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { code: REFUSED, error }
    }
}

impl Failure {
    /// Says what went wrong, once, and gives the code to exit with.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("leasehold: {:#}", self.error);
        ExitCode::from(self.code)
    }
}

/// One or several names as the command line has them.
pub(crate) fn names(texts: &[String]) -> anyhow::Result<Names> {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    Ok(Names::try_from(texts.as_slice())?)
}

/// Reads the name of a lock.
pub(crate) fn name(text: &str) -> anyhow::Result<String> {
    Ok(LockName::parse(text)?.as_str().to_owned())
}

/// Reads a length of time that may be nothing.
pub(crate) fn wait(text: &str) -> anyhow::Result<Duration> {
    match text {
        "0" | "0s" | "0ms" => Ok(Duration::ZERO),
        _ => duration::parse(text),
    }
}

/// The file for the locks of this user on this machine.
///
/// It depends on the home directory alone: a crontab and a login shell must come to the same file, and only
/// the shell has the `XDG_*` variables.
fn default_file() -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let home = home.or_else(home_by_user_id).context("there is no home directory; say --store")?;
    let folder = home.join(".local/state/leasehold");
    // What is created here is for this user alone: whoever can write it can break the locks.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.with_context(|| format!("cannot make {}; say --store", folder.display()))?;
    if leasehold_lock::doctor::is_on_network(&folder) == Some(true) {
        bail!(
            "{} is on a network file system, where a file of locks is not safe; say --store",
            home.display()
        );
    }
    Ok(folder.join("locks.db"))
}

/// A service may have no `HOME`.
fn home_by_user_id() -> Option<PathBuf> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let user_id = rustix::process::geteuid().as_raw().to_string();
    let line = users.lines().find(|line| line.split(':').nth(2) == Some(&user_id))?;
    line.split(':').nth(5).filter(|home| home.starts_with('/')).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_may_be_nothing_and_names_are_checked_before_anything_is_asked() {
        assert_eq!(wait("0s").unwrap(), Duration::ZERO);
        assert_eq!(wait("5m").unwrap(), Duration::from_secs(300));
        assert!(wait("-1s").is_err());
        assert!(name("").is_err());
        assert_eq!(names(&["b".to_owned(), "a".to_owned()]).unwrap().to_string(), "`a`, `b`");
    }
}
