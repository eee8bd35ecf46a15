//! Where the server keeps its locks: the one place that chooses a lock store.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use leasehold_lock::backend::Backend;
use leasehold_lock::{Locker, Sqlite, StoreOptions};

/// A choice of store.
#[derive(Debug, Clone)]
pub(crate) enum LockStore {
    /// A file of its own beside the data file.
    BesideData,
    /// Whatever the URL names.
    Url {
        /// Where.
        url: String,
        /// What the URL does not say.
        options: StoreOptions,
    },
}

impl LockStore {
    /// Opens it. Servers are connected when they are first asked.
    pub(crate) fn open(&self, data: &Path) -> anyhow::Result<Locker> {
        let backend: Arc<dyn Backend> = match self {
            Self::BesideData => Arc::new(beside(data)?),
            Self::Url { url, options } => {
                check(url, options)?;
                leasehold_lock::open(url, options).context("--locks")?
            }
        };
        let (store, guarantee) = (backend.kind(), backend.guarantees().level.as_str());
        tracing::info!(store, guarantee, "locks");
        Ok(Locker::with_settings(backend, leasehold_lock::Settings::default()))
    }
}

fn beside(data: &Path) -> anyhow::Result<Sqlite> {
    let mut path = data.as_os_str().to_owned();
    path.push(".locks");
    let path = PathBuf::from(path);
    // Owner tokens are in it, so only the server's user can read it.
    let made = File::options().create(true).append(true).mode(0o600).open(&path);
    made.with_context(|| format!("cannot make the file of the locks, {}", path.display()))?;
    Ok(Sqlite::open(path)?)
}

/// An option that the store would not look at is a mistake.
fn check(url: &str, options: &StoreOptions) -> anyhow::Result<()> {
    let scheme = url.split(':').next().unwrap_or_default();
    let is_redis = scheme.starts_with("redis") || scheme.starts_with("valkey");
    if options.prefix.is_some() && !is_redis && !scheme.starts_with("redlock") {
        bail!("--lock-prefix is for locks on Redis");
    }
    if options.epochs.is_some() && !is_redis {
        bail!("--lock-epochs is for locks on Redis; other stores need none");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_mean_nothing_are_refused() {
        let prefix = StoreOptions { prefix: Some("app:".to_owned()), epochs: None };
        let epochs = StoreOptions { prefix: None, epochs: Some("postgres://localhost/x".to_owned()) };
        assert!(check("sqlite:x", &prefix).is_err() && check("redlock://a,b,c", &prefix).is_ok());
        assert!(check("redlock://a,b,c", &epochs).is_err() && check("redis-cluster://a", &epochs).is_ok());
    }
}
