//! What can go wrong, sorted by what the caller does next.

use crate::name::Names;

/// Whatever a store's own library reported.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What was asked of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Taking the lock.
    Acquire,
    /// Lengthening the lease.
    Renew,
    /// Giving it back.
    Release,
    /// Looking at it.
    Inspect,
}

/// A lock call that failed.
///
/// That somebody else holds the lock is not here: it is an answer, [`Acquired::Busy`](crate::Acquired::Busy).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The lease is over. Stop the protected work now.
    #[error("lost the lease on {names}: {reason}")]
    Lost {
        /// What was locked.
        names: Names,
        /// How it ended.
        reason: LostReason,
    },

    /// No answer came: the call may have taken effect, or not. An acquisition is being undone; a release is
    /// tried again in the background, and at the latest the lease ends by itself.
    #[error("no answer from {store} to {operation} of {names}; it may have taken effect")]
    Unknown {
        /// Which kind of store.
        store: &'static str,
        /// What was asked.
        operation: Operation,
        /// Of which names.
        names: Names,
        /// Why there was no answer.
        source: BoxError,
    },

    /// The store answered no, and will again. Fix the setup before trying again.
    #[error("{store} refused {operation} of {names}")]
    Refused {
        /// Which kind of store.
        store: &'static str,
        /// What was asked.
        operation: Operation,
        /// Of which names.
        names: Names,
        /// The store's reason.
        source: BoxError,
    },

    /// The request itself makes no sense: a bad name, length or token. Nothing was asked of the store.
    #[error("not a lock that can be asked for")]
    Invalid(#[source] BoxError),
}

/// How a lease ended before its holder gave it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostReason {
    /// It could not be renewed in time.
    NotRenewed,
    /// The store says that it belongs to nobody or to somebody else.
    Gone,
    /// It was renewed for as long as its holder allowed at the start.
    HeldTooLong,
}

/// What a store's implementation reports when it has no answer to give.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The call may have taken effect.
    #[error("no answer; it may have taken effect")]
    Unknown(#[source] BoxError),
    /// The store answered no, and will again.
    #[error("refused")]
    Refused(#[source] BoxError),
}

impl StoreError {
    /// The same once more, for another of those who asked together.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn to_another(&self) -> Self {
        match self {
            Self::Unknown(source) => Self::Unknown(source.to_string().into()),
            Self::Refused(source) => Self::Refused(source.to_string().into()),
        }
    }

    pub(crate) fn of(self, store: &'static str, operation: Operation, names: &Names) -> LockError {
        let names = names.clone();
        match self {
            Self::Unknown(source) => LockError::Unknown { store, operation, names, source },
            Self::Refused(source) => LockError::Refused { store, operation, names, source },
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Acquire => "the acquisition",
            Self::Renew => "the renewal",
            Self::Release => "the release",
            Self::Inspect => "an inspection",
        })
    }
}

impl std::fmt::Display for LostReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotRenewed => "it could not be renewed in time",
            Self::Gone => "the store gave it away",
            Self::HeldTooLong => "it was held for as long as was allowed at the start",
        })
    }
}
