//! The only proof of holding a lock.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::Core;
use super::registry::Release;
use super::tenure::{LeaseState, Tenure};
use crate::backend::{Held, Released};
use crate::clock::Moment;
use crate::error::{LockError, LostReason, Operation};
use crate::lease::{Fence, Guarantee};
use crate::name::Names;
use crate::owner::Owner;

/// A lock that is held, until it is released, dropped or lost.
///
/// Dropping it gives the lock back in the background; [`release`](Self::release) waits for the answer.
#[must_use = "the lock is given back when the guard is dropped"]
pub struct Guard {
    core: Arc<Core>,
    tenure: Arc<Tenure>,
    /// A request for it had no answer, and may still be on its way.
    unsure: bool,
    on_drop: OnDrop,
}

/// What is left to do when a guard is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnDrop {
    GiveBack,
    /// The store has answered the release.
    Released,
    /// Somebody else goes on with the lease.
    Detached,
}

impl Guard {
    pub(super) fn new(core: Arc<Core>, tenure: Arc<Tenure>, unsure: bool) -> Self {
        Self { core, tenure, unsure, on_drop: OnDrop::GiveBack }
    }

    /// What is locked.
    pub fn names(&self) -> &Names {
        &self.tenure.held.names
    }

    /// The fencing token: send it along with every write that the lock protects, and have the resource
    /// refuse lower ones. `None` where the store grants no fence, see [`guarantee`](Self::guarantee).
    ///
    /// With several names this is the first one's; see [`fences`](Self::fences).
    ///
    /// ```
    /// use leasehold_lock::{Fence, Locker, Memory};
    ///
    /// /// The resource: it remembers the highest fence and refuses lower ones.
    /// struct Document { fence: Fence, text: String }
    ///
    /// impl Document {
    ///     fn write(&mut self, fence: Fence, text: &str) -> bool {
    ///         let accepted = fence >= self.fence;
    ///         if accepted {
    ///             (self.fence, self.text) = (fence, text.to_owned());
    ///         }
    ///         accepted
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold_lock::LockError> {
    /// let locker = Locker::new(Memory::new());
    /// let mut document = Document { fence: Fence(0), text: String::new() };
    ///
    /// let first = locker.acquire("document").await?.granted().expect("nobody else wants it");
    /// let late = first.fence().expect("memory grants fences");
    /// first.release().await?;
    /// let second = locker.acquire("document").await?.granted().expect("nobody else wants it");
    ///
    /// assert!(document.write(second.fence().expect("memory grants fences"), "new"));
    /// // The first holder was slow; its write arrives when the second one's is done.
    /// assert!(!document.write(late, "old"));
    /// assert_eq!(document.text, "new");
    /// # Ok(())
    /// # }
    /// ```
    pub fn fence(&self) -> Option<Fence> {
        self.fences()?.first().copied()
    }

    /// One fence per name, in the order of [`names`](Self::names).
    pub fn fences(&self) -> Option<&[Fence]> {
        self.tenure.fences.as_deref()
    }

    /// What this grant is worth.
    pub fn guarantee(&self) -> Guarantee {
        self.core.guarantee
    }

    /// The token of this acquisition. Whoever has it can release the lock.
    pub fn owner(&self) -> &Owner {
        &self.tenure.held.owner
    }

    /// What the holder may believe now.
    pub fn state(&self) -> LeaseState {
        self.tenure.state(self.core.clock.now())
    }

    /// How long the work may go on if no renewal gets through: the time until [`lost`](Self::lost) fires.
    ///
    /// It ends before the store lets another owner in, by a margin for clocks that run apart and for the
    /// time it takes to stop.
    pub fn time_left(&self) -> Duration {
        match self.state() {
            LeaseState::Lost => Duration::ZERO,
            LeaseState::Held | LeaseState::Doubtful => self.tenure.deadline().since(self.core.clock.now()),
        }
    }

    /// When the work must have stopped unless a renewal gets through, by [`Clock::system`](crate::Clock::system).
    pub fn deadline(&self) -> Moment {
        self.tenure.deadline()
    }

    /// `Ok` while the lock is held. Ask right before a write that carries no fence.
    pub fn check(&self) -> Result<(), LockError> {
        match self.state() {
            LeaseState::Held | LeaseState::Doubtful => Ok(()),
            LeaseState::Lost => Err(self.lost_error()),
        }
    }

    /// Returns when the lease is lost, before anybody else can have the lock.
    pub async fn lost(&self) -> LostReason {
        loop {
            let signal = self.tenure.lost_signal.notified();
            if self.state() == LeaseState::Lost {
                return self.reason();
            }
            // The keeper signals in time; the own timer is for a keeper that is held up.
            tokio::select! {
                () = signal => {}
                () = tokio::time::sleep(self.time_left() + Duration::from_millis(1)) => {}
            }
        }
    }

    /// Runs work that is cancelled, by dropping it, when the lease is lost.
    ///
    /// Work that was cancelled may have done a part; what it had sent out may still arrive. That is what
    /// the [`fence`](Self::fence) is for.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold_lock::{LockError, Locker, LostReason, Memory};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let locker = Locker::new(Memory::new());
    /// let guard = locker.acquire("report").await?.granted().expect("nobody else wants it");
    /// assert_eq!(guard.run(async { 6 * 7 }).await?, 42);
    /// guard.release().await?;
    ///
    /// // Work that hangs is cancelled when its time is up, before anybody else can have the lock.
    /// let asked = locker.acquire("report").ttl(Duration::from_millis(50)).hold_max(Duration::from_millis(100));
    /// let guard = asked.await?.granted().expect("nobody else wants it");
    /// match guard.run(std::future::pending::<()>()).await {
    ///     Err(LockError::Lost { reason, .. }) => assert_eq!(reason, LostReason::HeldTooLong),
    ///     other => panic!("it cannot end by itself: {other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, LockError> {
        self.check()?;
        tokio::select! {
            biased;
            _ = self.lost() => Err(self.lost_error()),
            done = work => self.check().map(|()| done),
        }
    }

    /// Gives the lock back and says whether it still was this holder's.
    ///
    /// When the answer is lost, or this future is dropped, it is tried again in the background.
    pub async fn release(mut self) -> Result<Released, LockError> {
        self.core.registry.forget(&self.tenure);
        let held = &self.tenure.held;
        let released = self.core.backend.release(held).await;
        let released =
            released.map_err(|error| error.of(self.core.backend.kind(), Operation::Release, &held.names))?;
        self.on_drop = OnDrop::Released;
        Ok(released)
    }

    /// Lets go of the guard without giving the lock back: it is not renewed any more and ends by itself,
    /// or by whoever is told its owner.
    pub fn detach(mut self) -> Held {
        self.core.registry.forget(&self.tenure);
        self.on_drop = OnDrop::Detached;
        if self.unsure {
            self.core.registry.note_unsure(&self.tenure.held, self.core.clock.now());
        }
        self.tenure.held.clone()
    }

    fn reason(&self) -> LostReason {
        self.tenure.lost_reason().unwrap_or_else(|| self.tenure.reason_by_clock())
    }

    fn lost_error(&self) -> LockError {
        LockError::Lost { names: self.names().clone(), reason: self.reason() }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.on_drop == OnDrop::Detached {
            return;
        }
        let now = self.core.clock.now();
        let time = now.since(self.tenure.since);
        self.core.meters.held(time);
        self.core.advice.note(self.tenure.held.names.first().class(), time);
        let held = || self.tenure.held.clone();
        match self.on_drop {
            // Also after an answer: what is on its way may take the lock after it.
            OnDrop::GiveBack | OnDrop::Released if self.unsure => {
                self.core.registry.forget(&self.tenure);
                self.core.give_back_unanswered(held(), now);
            }
            OnDrop::GiveBack => {
                self.core.registry.forget(&self.tenure);
                self.core.registry.give_back(Release::granted(held(), now));
            }
            OnDrop::Released | OnDrop::Detached => {}
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("names", self.names())
            .field("fences", &self.fences())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
