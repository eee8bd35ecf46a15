//! Getting a lock: ask, wait to be woken, ask again, until it is granted or the time is up.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use super::guard::Guard;
use super::registry::Release;
use super::tenure::{Renewal, Tenure};
use crate::backend::{Attempt, Held, Order, Request};
use crate::bells::Watch;
use crate::clock::Moment;
use crate::error::{LockError, Operation, StoreError};
use crate::lease::{Busy, Grant};

/// How often a request without an answer is sent again.
const UNKNOWN_RETRIES_MAX: u32 = 2;
/// Without a bell, a waiter looks for itself after this at first, and then ever more slowly.
const LOOK_AFTER_MIN: Duration = Duration::from_millis(5);
const LOOK_AFTER_MAX: Duration = Duration::from_millis(250);
/// With a bell, looking is only for rings that were missed.
const LOOK_AFTER_WITH_BELL: Duration = Duration::from_secs(1);
/// Waiters in a queue show this often that they are alive. They find out in time that their turn has come
/// although they were not told.
pub(crate) const LOOK_AFTER_IN_QUEUE: Duration = Duration::from_millis(200);
/// A wait of years is a mistake; it also keeps the arithmetic in range.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What came of asking for a lock.
#[derive(Debug)]
pub enum Acquired {
    /// It is held as long as the guard lives.
    Granted(Guard),
    /// Somebody else has it, also after the wait.
    Busy(Busy),
}

impl Acquired {
    /// The guard, or `None` when somebody else has the lock.
    pub fn granted(self) -> Option<Guard> {
        match self {
            Self::Granted(guard) => Some(guard),
            Self::Busy(_) => None,
        }
    }
}

/// Whether an owner may have asked before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// It was made for this acquisition.
    Never,
    /// The caller brought it, and no other process has it.
    Here,
    /// The caller brought it.
    Perhaps,
}

/// One acquisition on its way. Dropping it, at any point, undoes what it may have done.
pub(super) struct Pursuit {
    core: Arc<Core>,
    held: Held,
    renewal: Renewal,
    asked_before: Asked,
    /// Something may be left in the store.
    dirty: bool,
    /// A request had no answer.
    unsure: bool,
    /// A request is waiting for its answer.
    asking: bool,
}

impl Pursuit {
    pub(super) fn new(core: Arc<Core>, held: Held, renewal: Renewal, asked_before: Asked) -> Self {
        Self { core, held, renewal, asked_before, dirty: false, unsure: false, asking: false }
    }

    pub(super) async fn run(mut self, wait: Duration) -> Result<Acquired, LockError> {
        self.core.ensure_keeper_runs();
        if self.asked_before != Asked::Never {
            self.unsure = self.core.registry.reclaim(&self.held.owner).await;
        }
        let began = self.core.clock.now();
        let until = began + wait.min(WAIT_MAX);
        let mut watch: Option<(Watch, Busy)> = None;
        let (mut looks, mut late) = (0, 0);
        loop {
            let sent = self.core.clock.now();
            let busy = match self.ask().await? {
                Attempt::Granted(grant) => {
                    if let Some((watch, _)) = &mut watch {
                        watch.settle();
                    }
                    if let Some(guard) = self.hold(grant, sent, began) {
                        return Ok(Acquired::Granted(guard));
                    }
                    // It came too late to be of use: given back before it is asked for again, so that the
                    // release cannot meet the next grant.
                    self.unsure = true;
                    if let Err(error) = self.core.backend.release(&self.held).await {
                        return Err(self.failed(error));
                    }
                    let left = until.since(self.core.clock.now());
                    if left.is_zero() {
                        let late = StoreError::Unknown("the answer came after the lease had ended".into());
                        return Err(self.failed(late));
                    }
                    // It may be too short for this store, and then the next one is no better.
                    late += 1;
                    tokio::time::sleep(jittered(look_after(late)).min(left)).await;
                    continue;
                }
                Attempt::Busy(busy) => busy,
            };
            if looks == 0 {
                self.core.meters.contended.inc();
            }
            looks += 1;
            if sent >= until {
                self.core.meters.timed_out.inc();
                return Ok(Acquired::Busy(busy));
            }
            // Whoever waits for another name than the one it was woken for passes the ring on by dropping
            // its ear; otherwise the ring is used up.
            match &mut watch {
                Some((watch, before)) if before.name == busy.name => watch.settle(),
                _ => {
                    // Whoever cannot be told soon looks meanwhile.
                    let look_after = match self.held.order {
                        Order::Fifo => LOOK_AFTER_IN_QUEUE,
                        Order::Any => LOOK_AFTER_WITH_BELL,
                    };
                    let left = until.since(self.core.clock.now()).min(look_after);
                    watch = None;
                    let Ok(told) = tokio::time::timeout(left, self.listen(&busy)).await else { continue };
                    watch = told;
                    // What was released before the ear was open did not ring: look once more at once.
                    if watch.is_some() {
                        continue;
                    }
                }
            }
            self.pause(watch.as_mut().map(|(watch, _)| watch), &busy, looks, until).await;
        }
    }

    /// Asks the store once, and again with the same token when no answer came.
    async fn ask(&mut self) -> Result<Attempt, LockError> {
        for retry in 0.. {
            (self.dirty, self.asking) = (true, true);
            let Held { names, owner, ttl, order } = &self.held;
            let request = Request { names, owner, ttl: *ttl, order: *order };
            match self.core.backend.try_acquire(&request).await {
                Ok(attempt) => {
                    self.asking = false;
                    self.dirty = match &attempt {
                        Attempt::Granted(_) => true,
                        Attempt::Busy(_) => self.unsure || self.held.order == Order::Fifo,
                    };
                    return Ok(attempt);
                }
                Err(StoreError::Unknown(_)) if retry < UNKNOWN_RETRIES_MAX => {
                    self.unsure = true;
                    tokio::time::sleep(jittered(LOOK_AFTER_MIN * 2u32.pow(retry + 1))).await;
                }
                Err(error) => {
                    self.asking = matches!(error, StoreError::Unknown(_));
                    return Err(self.failed(error));
                }
            }
        }
        unreachable!("the last retry returns")
    }

    fn failed(&self, error: StoreError) -> LockError {
        error.of(self.core.backend.kind(), Operation::Acquire, &self.held.names)
    }

    /// Opens an ear for the busy name; without one, looking has to do.
    async fn listen(&self, busy: &Busy) -> Option<(Watch, Busy)> {
        let Held { names, owner, ttl, order } = &self.held;
        let request = Request { names, owner, ttl: *ttl, order: *order };
        match self.core.backend.watch(&request, &busy.name).await {
            Ok(watch) => Some((watch, busy.clone())),
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "cannot be told of releases");
                None
            }
        }
    }

    async fn pause(&self, watch: Option<&mut Watch>, busy: &Busy, looks: u32, until: Moment) {
        let left = until.since(self.core.clock.now());
        let look_after = match (&watch, self.held.order) {
            (_, Order::Fifo) => LOOK_AFTER_IN_QUEUE,
            (Some(_), Order::Any) => LOOK_AFTER_WITH_BELL,
            (None, Order::Any) => look_after(looks),
        };
        // A lease that ends by itself rings no bell.
        let end = busy.remaining.map_or(look_after, |remaining| remaining + Duration::from_millis(1));
        let pause = jittered(look_after).min(end).min(left);
        match watch {
            Some(watch) => {
                tokio::select! {
                    () = watch.rung() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
            None => tokio::time::sleep(pause).await,
        }
    }

    /// Makes the guard, unless too little of the lease is left to be of use.
    fn hold(&mut self, grant: Grant, sent: Moment, began: Moment) -> Option<Guard> {
        let registry = &self.core.registry;
        let tenure = Tenure::new(registry.next_id(), self.held.clone(), grant, sent, self.renewal);
        let now = self.core.clock.now();
        let tenure = Arc::new(tenure);
        if tenure.deadline() <= now {
            return None;
        }
        self.dirty = false;
        registry.watch_over(&tenure, tenure.renews_at(sent));
        self.core.meters.granted.inc();
        self.core.meters.wait_seconds.observe(now.since(began).as_secs_f64());
        Some(Guard::new(self.core.clone(), tenure, self.unsure))
    }
}

impl Drop for Pursuit {
    fn drop(&mut self) {
        if self.dirty {
            let (held, now) = (self.held.clone(), self.core.clock.now());
            // A caller's token may be asked for again elsewhere by now, where a late release would take the lock away.
            if (self.unsure || self.asking) && self.asked_before != Asked::Perhaps {
                self.core.give_back_unanswered(held, now);
            } else {
                self.core.registry.give_back(Release::abandoned(held, now));
            }
        }
    }
}

/// Ever more slowly.
fn look_after(looks: u32) -> Duration {
    (LOOK_AFTER_MIN * 2u32.pow(looks.min(10))).min(LOOK_AFTER_MAX)
}

/// Between half and all of a pause, so that those who began together do not stay together.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}
