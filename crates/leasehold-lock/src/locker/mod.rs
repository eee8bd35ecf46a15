//! The part of locking that is the same on every store: waiting, renewing, giving back.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

mod acquire;
mod advice;
mod guard;
mod keeper;
mod late;
mod meters;
mod registry;
mod tenure;

pub use acquire::Acquired;
#[cfg(feature = "redis")]
pub(crate) use acquire::LOOK_AFTER_IN_QUEUE;
pub use advice::Advice;
pub use guard::Guard;
pub use meters::Meters;
pub use tenure::LeaseState;

use acquire::{Asked, Pursuit};
use advice::Advisor;
use keeper::Keeper;
use registry::{Registry, Release};
use tenure::Renewal;

use crate::backend::{Backend, Held, ListQuery, Order, Page, Released, Renewed};
use crate::clock::{Clock, Moment};
use crate::error::{BoxError, LockError, Operation, StoreError};
use crate::lease::{Guarantee, Guarantees, LeaseView, Ttl};
use crate::name::{LockName, Names};
use crate::owner::{Label, Owner};

/// How long a lease lasts unless it is said otherwise. A holder that dies keeps others out for so long.
pub const TTL_DEFAULT: Duration = Duration::from_secs(10);
/// How long to wait for a lock unless it is said otherwise.
pub const WAIT_DEFAULT: Duration = Duration::from_secs(2);
/// For how long a lease is renewed in all unless it is said otherwise: a guard that was leaked, or work
/// that hangs, must not keep a lock for ever.
pub const HOLD_MAX_DEFAULT: Duration = Duration::from_secs(60 * 60);

/// Acquires locks on one store. Cloning is cheap and shares everything.
#[derive(Debug, Clone)]
pub struct Locker(Arc<Core>);

/// What can be set once for a `Locker`.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What people see as the owner of its locks; by default this host's name and process id.
    pub label: Option<Label>,
    /// Where the time comes from.
    pub clock: Clock,
}

#[derive(Debug)]
pub(crate) struct Core {
    backend: Arc<dyn Backend>,
    registry: Arc<Registry>,
    guarantee: Guarantee,
    label: Option<Label>,
    clock: Clock,
    meters: Meters,
    advice: Advisor,
}

/// An acquisition that can still be given options. Await it.
#[must_use = "nothing is acquired until this is awaited"]
#[derive(Debug)]
pub struct Acquire {
    core: Arc<Core>,
    names: Result<Names, BoxError>,
    owner: Option<Owner>,
    asked_before: Asked,
    label: Option<Label>,
    ttl: Duration,
    wait: Duration,
    renew: bool,
    hold_max: Duration,
    order: Order,
}

impl Default for Settings {
    fn default() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let label = format!("{}/{}", host.trim(), std::process::id());
        Self { label: Label::lossy(&label), clock: Clock::system() }
    }
}

impl Locker {
    /// Locks on a store.
    pub fn new(backend: impl Backend + 'static) -> Self {
        Self::with_settings(Arc::new(backend), Settings::default())
    }

    /// The same, with a store that was chosen at run time and settings of the caller's.
    pub fn with_settings(backend: Arc<dyn Backend>, settings: Settings) -> Self {
        let guarantee = backend.guarantees().level;
        Self(Arc::new(Core {
            backend,
            registry: Arc::default(),
            guarantee,
            label: settings.label,
            clock: settings.clock,
            meters: Meters::default(),
            advice: Advisor::default(),
        }))
    }

    /// Asks for a lock, or for several at once; await the result.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold_lock::{Acquired, Locker, Memory};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold_lock::LockError> {
    /// let locker = Locker::new(Memory::new());
    /// let asked = locker.acquire("invoice:42").ttl(Duration::from_secs(5)).await?;
    /// let guard = asked.granted().expect("nobody else wants it");
    ///
    /// // Somebody else who asks meanwhile is told so, and for how long at most.
    /// match locker.acquire("invoice:42").no_wait().await? {
    ///     Acquired::Granted(_) => unreachable!("it is taken"),
    ///     Acquired::Busy(busy) => assert!(busy.remaining <= Some(Duration::from_secs(5))),
    /// }
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Several names are taken all or none. Their order does not matter, so two callers that want the same
    /// ones never wait for each other:
    ///
    /// ```
    /// use leasehold_lock::{Locker, Memory};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold_lock::LockError> {
    /// let locker = Locker::new(Memory::new());
    /// let transfer = locker.acquire(["account:7", "account:3"]).await?.granted().expect("both are free");
    /// assert_eq!(transfer.names().to_string(), "`account:3`, `account:7`");
    /// assert_eq!(transfer.fences().map(<[_]>::len), Some(2));
    ///
    /// let other = locker.acquire(["account:1", "account:3"]).no_wait().await?;
    /// assert!(other.granted().is_none());
    /// // One was taken, so the other was not taken either.
    /// assert!(locker.acquire("account:1").no_wait().await?.granted().is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire<N>(&self, names: N) -> Acquire
    where
        N: TryInto<Names>,
        N::Error: Into<BoxError>,
    {
        Acquire {
            core: self.0.clone(),
            names: names.try_into().map_err(Into::into),
            owner: None,
            asked_before: Asked::Never,
            label: self.0.label.clone(),
            ttl: TTL_DEFAULT,
            wait: WAIT_DEFAULT,
            renew: true,
            hold_max: HOLD_MAX_DEFAULT,
            order: Order::Any,
        }
    }

    /// Lengthens a lease that has no guard in this process.
    pub async fn renew(&self, held: &Held) -> Result<Renewed, LockError> {
        let mut answers = self.0.backend.renew(std::slice::from_ref(held)).await;
        let missing = || StoreError::Refused("the store did not answer".into());
        let answer = answers.pop().ok_or_else(missing).and_then(|answer| answer);
        answer.map_err(|error| {
            self.0.meters.renewal_failures.inc();
            self.failed(error, Operation::Renew, &held.names)
        })
    }

    /// Gives back a lease that has no guard in this process.
    ///
    /// When the answer is lost, or this future is dropped, it is tried again in the background. So it is, also after
    /// an answer, for a guard of this locker that was [detached](Guard::detach) and had a request without an answer.
    pub async fn release(&self, held: &Held) -> Result<Released, LockError> {
        self.0.ensure_keeper_runs();
        let unsure = self.0.registry.take_unsure(&held.owner, self.0.clock.now());
        let mut pending = Pending { core: &self.0, held, unsure, is_answered: false };
        let released = self.0.backend.release(held).await;
        let released = released.map_err(|error| self.failed(error, Operation::Release, &held.names))?;
        pending.is_answered = true;
        Ok(released)
    }

    /// Whether something of this owner's is still being given back in the background, or will be.
    pub fn is_giving_back(&self, owner: &Owner) -> bool {
        self.0.registry.is_giving_back(owner)
    }

    /// Who holds a name now.
    pub async fn inspect(&self, name: &LockName) -> Result<Option<LeaseView>, LockError> {
        let found = self.0.backend.inspect(name).await;
        found.map_err(|error| self.failed(error, Operation::Inspect, &Names::from(name.clone())))
    }

    /// A page of the leases whose names begin with a prefix.
    pub async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.0.backend.list(query).await
    }

    /// How long leases of a class of names should be, from how long they were held in this process.
    pub fn advice(&self, class: &str) -> Option<Advice> {
        self.0.advice.advise(class)
    }

    /// Notes how long a lock without a guard was held, for the advice and the meters.
    pub fn note_held(&self, name: &LockName, held: Duration) {
        self.0.meters.held(held);
        self.0.advice.note(name.class(), held);
    }

    /// Which kind of store this is.
    pub fn store(&self) -> &'static str {
        self.0.backend.kind()
    }

    /// What the store's grants are worth.
    pub fn guarantees(&self) -> Guarantees {
        self.0.backend.guarantees()
    }

    /// Whether the store has a queue for [`Acquire::in_order`].
    pub fn keeps_order(&self) -> bool {
        self.0.backend.keeps_order()
    }

    /// The counters.
    pub fn meters(&self) -> &Meters {
        &self.0.meters
    }

    /// Waits until everything that was dropped is given back, for at most `time_max`. Call it before the
    /// runtime ends: after that nothing is left to release locks, and they end by their own time. What may arrive
    /// seconds after it was dropped is not waited for.
    pub async fn settle(&self, time_max: Duration) {
        let settled = async {
            while self.0.registry.is_busy() || self.0.backend.is_settling() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        // Whatever is left by then ends by itself.
        let _ = tokio::time::timeout(time_max, settled).await;
    }

    fn failed(&self, error: StoreError, operation: Operation, names: &Names) -> LockError {
        error.of(self.0.backend.kind(), operation, names)
    }
}

/// A release on its way.
struct Pending<'a> {
    core: &'a Core,
    held: &'a Held,
    /// How long a lease a request that is still on its way would take.
    unsure: Option<Ttl>,
    is_answered: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let (held, now) = (self.held.clone(), self.core.clock.now());
        if let Some(ttl) = self.unsure {
            self.core.give_back_unanswered(Held { ttl: ttl.max(held.ttl), ..held }, now);
        } else if !self.is_answered {
            self.core.registry.give_back(Release::granted(held, now));
        }
    }
}

impl Acquire {
    /// How long the lease lasts without renewal: 10 s unless said otherwise.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait while somebody else has it: 2 s unless said otherwise.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Asks once and does not wait.
    pub fn no_wait(self) -> Self {
        self.wait(Duration::ZERO)
    }

    /// Lets the lease end after its length instead of renewing it while the guard lives.
    pub fn no_renewal(mut self) -> Self {
        self.renew = false;
        self
    }

    /// For how long it is renewed in all: 1 h unless said otherwise.
    pub fn hold_max(mut self, hold_max: Duration) -> Self {
        self.hold_max = hold_max;
        self
    }

    /// Waits in line, where the store keeps a queue; a store without one refuses.
    ///
    /// ```
    /// use leasehold_lock::{Acquired, LockName, Locker, Memory};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold_lock::LockError> {
    /// let locker = Locker::new(Memory::new());
    /// let guard = locker.acquire("printer").await?.granted().expect("nobody else wants it");
    ///
    /// let first = tokio::spawn(locker.acquire("printer").in_order().into_future());
    /// // It stands in line once it is counted among those who wait.
    /// let printer = LockName::parse("printer").expect("it is a name");
    /// while locker.inspect(&printer).await?.and_then(|lease| lease.waiters) != Some(1) {
    ///     tokio::task::yield_now().await;
    /// }
    /// // Whoever asks now is told how many are before it.
    /// match locker.acquire("printer").in_order().no_wait().await? {
    ///     Acquired::Granted(_) => unreachable!("it is taken"),
    ///     Acquired::Busy(busy) => assert_eq!(busy.ahead, Some(1)),
    /// }
    /// guard.release().await?;
    /// assert!(first.await.expect("it does not panic")?.granted().is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_order(mut self) -> Self {
        self.order = Order::Fifo;
        self
    }

    /// What people see as the owner.
    pub fn label(mut self, label: Label) -> Self {
        self.label = Some(label);
        self
    }

    /// Shows no label, not even the locker's.
    pub fn no_label(mut self) -> Self {
        self.label = None;
        self
    }

    /// Uses a token of the caller's. It must be for this one acquisition, which may be asked for again with it.
    pub fn owner(mut self, owner: Owner) -> Self {
        (self.owner, self.asked_before) = (Some(owner), Asked::Perhaps);
        self
    }

    /// The same with a token that no other process has. What a request that is given up may leave in the store is then
    /// released as late as it may arrive, as for a token that was made here.
    pub fn owner_of_this_process(mut self, owner: Owner) -> Self {
        (self.owner, self.asked_before) = (Some(owner), Asked::Here);
        self
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Acquired, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let names = self.names.map_err(LockError::Invalid)?;
            let ttl = Ttl::new(self.ttl).map_err(|error| LockError::Invalid(error.into()))?;
            let owner = self.owner.unwrap_or_else(|| Owner::random(self.label.as_ref()));
            let renewal = if self.renew { Renewal::Until(self.hold_max) } else { Renewal::Off };
            let held = Held { names, owner, ttl, order: self.order };
            let pursuit = Pursuit::new(self.core, held, renewal, self.asked_before);
            pursuit.run(self.wait).await
        })
    }
}

impl Core {
    /// Starts the keeper on this runtime unless it runs.
    fn ensure_keeper_runs(&self) {
        if self.registry.begin_keeping() {
            let keeper = Keeper {
                backend: self.backend.clone(),
                registry: self.registry.clone(),
                clock: self.clock.clone(),
                meters: self.meters.clone(),
            };
            keeper.start();
        }
    }

    /// Gives back what had a request without an answer: what is on its way may take the names after this.
    fn give_back_unanswered(&self, held: Held, now: Moment) {
        let release = if self.backend.hears_late() { Release::unanswered } else { Release::abandoned };
        self.registry.give_back(release(held, now));
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.registry.close();
    }
}
