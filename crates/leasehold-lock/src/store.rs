//! Stores by URL, for whoever chooses them at run time.

use std::sync::Arc;

use crate::backend::Backend;
use crate::error::BoxError;
use crate::memory::Memory;

/// What a URL does not say.
#[derive(Debug, Clone, Default)]
pub struct StoreOptions {
    /// What stands before the name in the keys of Redis; `lock:` unless said otherwise.
    pub prefix: Option<String>,
    /// The PostgreSQL database that hands out epochs, for fences on Redis.
    pub epochs: Option<String>,
}

/// Why a URL names no store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Not a URL that is known here.
    #[error("not the URL of a lock store; known are {KNOWN}")]
    Unknown,
    /// Known, but not built in.
    #[error("{0} is not built into this program; build it with the feature of that name")]
    NotBuiltIn(&'static str),
    /// Known, but this one cannot be.
    #[error("cannot use this {kind} store")]
    Bad {
        /// Which kind of store.
        kind: &'static str,
        /// Why not.
        source: BoxError,
    },
}

const KNOWN: &str = "memory:, sqlite:FILE, redis://HOST, redis-cluster://HOST,HOST, \
                     redis-sentinel://HOST,HOST/MASTER, redlock://HOST,HOST,HOST, \
                     postgres://HOST/DATABASE, and for TLS rediss://, rediss-cluster://, rediss-sentinel://, redlocks://";

/// Opens the store that a URL names. Servers are connected when they are first asked.
pub fn open(url: &str, options: &StoreOptions) -> Result<Arc<dyn Backend>, OpenError> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        "memory" => Ok(Arc::new(Memory::new())),
        "sqlite" => sqlite(url),
        "redis" | "rediss" | "valkey" | "valkeys" | "redis+unix" | "redis-cluster" | "rediss-cluster"
        | "redis-sentinel" | "rediss-sentinel" => redis(url, options),
        "redlock" | "redlocks" => redlock(url, options),
        "postgres" | "postgresql" => postgres(url),
        _ => Err(OpenError::Unknown),
    }
}

#[cfg(feature = "sqlite")]
fn sqlite(url: &str) -> Result<Arc<dyn Backend>, OpenError> {
    let path = url.trim_start_matches("sqlite:");
    let path = path.strip_prefix("//").unwrap_or(path);
    let store = crate::sqlite::Sqlite::open(path);
    Ok(Arc::new(store.map_err(|error| OpenError::Bad { kind: "sqlite", source: error.into() })?))
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(_url: &str) -> Result<Arc<dyn Backend>, OpenError> {
    Err(OpenError::NotBuiltIn("sqlite"))
}

#[cfg(feature = "redis")]
fn redis(url: &str, options: &StoreOptions) -> Result<Arc<dyn Backend>, OpenError> {
    use crate::redis::BadRedisUrl;
    let mut redis = crate::redis::Redis::open(url).map_err(|error| match error {
        BadRedisUrl::TlsNotBuiltIn => OpenError::NotBuiltIn("tls"),
        error => OpenError::Bad { kind: "redis", source: error.into() },
    })?;
    if let Some(prefix) = &options.prefix {
        redis = redis.with_prefix(prefix);
    }
    #[cfg(feature = "postgres")]
    if let Some(epochs) = &options.epochs {
        let epochs = crate::redis::Epochs::open(epochs).map_err(|error| match error {
            crate::postgres::BadPostgresUrl::TlsNotBuiltIn => OpenError::NotBuiltIn("tls"),
            error => OpenError::Bad { kind: "redis", source: error.into() },
        })?;
        redis = redis.with_epochs(epochs);
    }
    #[cfg(not(feature = "postgres"))]
    if options.epochs.is_some() {
        return Err(OpenError::NotBuiltIn("postgres"));
    }
    Ok(Arc::new(redis))
}

#[cfg(not(feature = "redis"))]
fn redis(_url: &str, _options: &StoreOptions) -> Result<Arc<dyn Backend>, OpenError> {
    Err(OpenError::NotBuiltIn("redis"))
}

#[cfg(feature = "redis")]
fn redlock(url: &str, options: &StoreOptions) -> Result<Arc<dyn Backend>, OpenError> {
    use crate::redis::BadRedisUrl;
    use crate::redlock::BadRedlock;
    let mut redlock = crate::redlock::Redlock::open(url).map_err(|error| match error {
        BadRedlock::Address(BadRedisUrl::TlsNotBuiltIn) => OpenError::NotBuiltIn("tls"),
        error => OpenError::Bad { kind: "redlock", source: error.into() },
    })?;
    if let Some(prefix) = &options.prefix {
        redlock = redlock.with_prefix(prefix);
    }
    Ok(Arc::new(redlock))
}

#[cfg(not(feature = "redis"))]
fn redlock(_url: &str, _options: &StoreOptions) -> Result<Arc<dyn Backend>, OpenError> {
    Err(OpenError::NotBuiltIn("redis"))
}

#[cfg(feature = "postgres")]
fn postgres(url: &str) -> Result<Arc<dyn Backend>, OpenError> {
    use crate::postgres::BadPostgresUrl;
    let store = crate::postgres::Postgres::open(url).map_err(|error| match error {
        BadPostgresUrl::TlsNotBuiltIn => OpenError::NotBuiltIn("tls"),
        error => OpenError::Bad { kind: "postgres", source: error.into() },
    })?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_url: &str) -> Result<Arc<dyn Backend>, OpenError> {
    Err(OpenError::NotBuiltIn("postgres"))
}
