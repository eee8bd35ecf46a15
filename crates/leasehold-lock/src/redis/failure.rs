//! What an error of the Redis client means to whoever asked.

use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::error::StoreError;

/// Sorts an error by what its receiver can do about it.
pub(super) fn failure(error: RedisError) -> StoreError {
    let refused = match error.kind() {
        _ if is_tls_refusal(&error) => true,
        ErrorKind::Server(kind) => !matches!(
            kind,
            ServerErrorKind::BusyLoading
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly
        ),
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::RESP3NotSupported
        | ErrorKind::Extension => true,
        _ => false,
    };
    let error: Arc<dyn std::error::Error + Send + Sync> = Arc::new(error);
    if refused { StoreError::Refused(error.into()) } else { StoreError::Unknown(error.into()) }
}

#[cfg(feature = "tls")]
fn is_tls_refusal(error: &RedisError) -> bool {
    if error.kind() != ErrorKind::Io {
        return false;
    }
    // The client keeps what happened to a connection behind a pointer that many share.
    let source = std::error::Error::source(error);
    let shared = source.and_then(|source| source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>());
    let of_one = shared.and_then(|shared| shared.downcast_ref()).is_some_and(crate::tls::is_refusal);
    // A cluster's client hands on no more than the words.
    let of_cluster = error.detail().is_some_and(|detail| detail.contains("invalid peer certificate"));
    of_one || of_cluster
}

#[cfg(not(feature = "tls"))]
fn is_tls_refusal(_error: &RedisError) -> bool {
    false
}
