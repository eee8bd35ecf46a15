//! Locks: a name leased to one owner until a deadline.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/locks/{name}`: leases the name, and waits for it while somebody else has it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcquireLock {
    /// How long the lease lasts unless it is renewed, 10 ms to 24 hours; 10000 when absent.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// How long to wait while somebody else has it, up to 60000; 0 asks once; 2000 when absent.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Who holds it, for people who look: 1 to 64 visible ASCII characters.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Who goes first when several wait: `any`, or `fifo` where the store keeps a queue; `any` when absent.
    #[serde(default, deserialize_with = "crate::given", skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
}

/// `PATCH /v1/locks/{name}`: lengthens the lease of the owner in `Lock-Owner`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewLock {
    /// How long the lease lasts from now on, 10 ms to 24 hours.
    pub ttl_ms: u64,
}

/// A lock that was granted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LockGrant {
    /// What is locked.
    pub name: String,
    /// Proof of holding, needed in the `Lock-Owner` header to renew and to release. Only in this answer.
    pub owner: String,
    /// A number that is higher with every grant of the name; `null` where the store has none.
    pub fence: Option<u64>,
    /// What the grant is worth: `fenced`, `lease` or `best-effort`.
    pub guarantee: String,
    /// Milliseconds from this answer to the end of the lease.
    pub expires_in_ms: u64,
}

/// A lease that was lengthened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LockRenewal {
    /// What is locked.
    pub name: String,
    /// Milliseconds from this answer to the end of the lease.
    pub expires_in_ms: u64,
}

/// A lock that was given back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LockRelease {
    /// What is free now.
    pub name: String,
    /// Always true; a lock that was not held any more is refused with `lock-lost`.
    pub released: bool,
}

/// A lock as everybody may see it, without its owner token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LockView {
    /// The name.
    pub name: String,
    /// Whether anybody has it.
    pub held: bool,
    /// Who holds it, in the holder's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// How long ago it was acquired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// When the lease ends unless it is renewed; absent when it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// The fence of the lease, where the store has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// How many wait for it, as far as the store and this server know.
    pub waiters: u32,
    /// What grants of the store are worth: `fenced`, `lease` or `best-effort`.
    pub guarantee: String,
    /// How long leases of this class of names should be, when enough of them were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<TtlAdvice>,
}

/// How long a lease should be, from how long locks of the same class of names were held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TtlAdvice {
    /// The class: what stands before the first `:` of the name.
    pub class: String,
    /// Three times `hold_p99_ms`, at least 3000.
    pub ttl_ms: u64,
    /// The time within which 99 of 100 were given back.
    pub hold_p99_ms: u64,
    /// How many were measured since the server was started.
    pub samples: u64,
}

/// A page of the locks that are held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LockList {
    /// The locks. A page may have fewer than were asked for, also none, and not be the last.
    pub locks: Vec<LockView>,
    /// Pass it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
