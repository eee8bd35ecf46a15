//! Locks that end by themselves, with fencing tokens, on the store you already run.
//!
//! A *lease* is a lock held until a deadline. A [`Guard`] is the only proof of holding one: it renews the
//! lease while it lives, tells when the lease is lost *before* anybody else can have the lock, and carries
//! the *fence*, a number that only grows, for the resource to refuse a holder that woke up too late.
//!
//! ```
//! use leasehold_lock::{Acquired, Locker, Memory};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), leasehold_lock::LockError> {
//! let locker = Locker::new(Memory::new());
//!
//! match locker.acquire("invoice:42").await? {
//!     Acquired::Granted(guard) => {
//!         let fence = guard.fence();
//!         // Cancelled if the lease is lost. Writes carry the fence.
//!         guard.run(async { println!("working with fence {fence:?}") }).await?;
//!         guard.release().await?;
//!     }
//!     Acquired::Busy(busy) => println!("somebody else has it for {:?}", busy.remaining),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Any future can be dropped at any point. What an acquisition may have left in the store is given back in the background, and
//! again while its request may still arrive, for up to two minutes; what arrives after that ends by itself. This needs the
//! runtime: see [`Locker::settle`].

pub mod backend;
mod bells;
mod clock;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod current;
pub mod doctor;
mod error;
mod lease;
/// A connection to Redis and scripts on it, for what is built beside locks.
#[cfg(feature = "redis")]
pub mod link {
    pub use crate::redis::keys::{SLOTS, slot};
    pub use crate::redis::link::Link;
    pub use crate::redis::script::Lua;
}
mod locker;
mod memory;
mod name;
mod owner;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redlock;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod silence;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
#[cfg(all(feature = "tls", any(feature = "postgres", feature = "redis")))]
mod tls;

pub use bells::{Bells, Watch};
pub use clock::{Clock, Moment};
pub use error::{BoxError, LockError, LostReason, Operation, StoreError};
pub use lease::{BadTtl, Busy, Fence, Grant, Guarantee, Guarantees, LeaseView, TTL_MAX, TTL_MIN, Ttl};
pub use locker::{
    Acquire, Acquired, Advice, Guard, HOLD_MAX_DEFAULT, LeaseState, Locker, Meters, Settings, TTL_DEFAULT,
    WAIT_DEFAULT,
};
pub use memory::Memory;
pub use name::{BadLockName, LOCK_NAME_BYTES_MAX, LockName, NAMES_MAX, Names};
pub use owner::{BadOwner, LABEL_BYTES_MAX, Label, OWNER_BYTES_MAX, Owner};
#[cfg(feature = "postgres")]
pub use postgres::{BadPostgresUrl, Connected as PostgresConnection, Database as PostgresDatabase, Postgres};
#[cfg(all(feature = "redis", feature = "postgres"))]
pub use redis::Epochs;
#[cfg(feature = "redis")]
pub use redis::{BadRedisUrl, PREFIX_DEFAULT, Redis};
#[cfg(feature = "redis")]
pub use redlock::{BadRedlock, Redlock};
#[cfg(feature = "sqlite")]
pub use sqlite::{Sqlite, SqliteError};
pub use store::{OpenError, StoreOptions, open};
