//! The narrow waist: what a store must be able to do. Everything else exists once, in `Locker`.

use async_trait::async_trait;

use crate::bells::Watch;
use crate::error::StoreError;
use crate::lease::{Busy, Grant, Guarantees, LeaseView, Ttl};
use crate::name::{LockName, Names};
use crate::owner::Owner;

/// A store that leases names.
///
/// Every call is safe to repeat with the same owner, because answers get lost and clients send again:
/// - acquiring what the same owner holds grants it again, with the same fences and a fresh length;
/// - releasing what the owner does not hold changes nothing, and says so;
/// - renewing never brings back a lease that is gone.
///
/// A dropped future may leave its effect behind; whoever drops it releases with the same owner.
#[async_trait]
pub trait Backend: Send + Sync + std::fmt::Debug {
    /// Which kind of store this is, for messages: `redis`, `sqlite`.
    fn kind(&self) -> &'static str;

    /// What its grants are worth.
    fn guarantees(&self) -> Guarantees;

    /// Whether it keeps a queue for [`Order::Fifo`]; if not, it refuses such requests.
    fn keeps_order(&self) -> bool {
        true
    }

    /// Takes all of the names for the owner, or none.
    async fn try_acquire(&self, request: &Request<'_>) -> Result<Attempt, StoreError>;

    /// Lengthens leases that are still their owners', many at once. The answers stand in the same order.
    async fn renew(&self, leases: &[Held]) -> Vec<Result<Renewed, StoreError>>;

    /// Gives the names back, and whatever place in a queue the owner had.
    async fn release(&self, lease: &Held) -> Result<Released, StoreError>;

    /// True while the release of a name has not reached every part of the store that it should reach.
    fn is_settling(&self) -> bool {
        false
    }

    /// True when a request that nobody waits for any more may take effect long after a release that was sent later, as
    /// it may when it went over another connection. It is released again then.
    fn hears_late(&self) -> bool {
        true
    }

    /// Who holds a name now.
    async fn inspect(&self, name: &LockName) -> Result<Option<LeaseView>, StoreError>;

    /// Leases of names that begin with a prefix, a page at a time. A lease that lasts during the whole
    /// listing is in it; it may be in it twice.
    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError>;

    /// From now on, tells when the one name for which the request waits may have become free, or its turn
    /// may have come. It may ring for nothing and may miss a release, so whoever waits also looks for itself
    /// from time to time.
    async fn watch(&self, request: &Request<'_>, name: &LockName) -> Result<Watch, StoreError>;
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What to lock.
    pub names: &'a Names,
    /// The token of this acquisition.
    pub owner: &'a Owner,
    /// How long the lease is.
    pub ttl: Ttl,
    /// Whether to take a place in the store's queue when the name is taken.
    pub order: Order,
}

/// Who goes first when several wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Whoever asks first after the release.
    #[default]
    Any,
    /// Whoever waits longest, where the store keeps a queue.
    Fifo,
}

/// What came of asking once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// All of the names are the owner's.
    Granted(Grant),
    /// One of them is somebody else's, and none was taken.
    Busy(Busy),
}

/// A lease to be renewed or released.
#[derive(Debug, Clone)]
pub struct Held {
    /// What is locked.
    pub names: Names,
    /// The token it was acquired with.
    pub owner: Owner,
    /// Its length.
    pub ttl: Ttl,
    /// How it was asked for.
    pub order: Order,
}

/// What came of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// Its full length counts again from the moment the request was sent.
    Extended,
    /// At least one of the names is not the owner's any more.
    Gone,
}

/// What came of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The names are free.
    Released,
    /// At least one of them was not the owner's; the others are free now.
    NotHeld,
}

/// Which leases to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// How the names begin.
    pub prefix: String,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// About how many to look at.
    pub limit: usize,
}

/// Some of the leases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The leases.
    pub leases: Vec<LeaseView>,
    /// Where to go on; `None` at the end.
    pub cursor: Option<String>,
}
