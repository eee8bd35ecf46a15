//! What callers and the writer share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use hashbrown::HashMap;
use leasehold_core::{Name, State, Timestamp};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::hall::Hall;
use super::keys::Keys;
use super::messenger::Saying;
use super::queue::Queue;
use crate::{Clock, Done, EngineError, Meters, Request, SecretKey};

/// Something for the writer to do.
pub(crate) enum Job {
    /// Carry out a command; the reply comes after the commit.
    Execute { request: Box<Request>, reply: oneshot::Sender<Result<Done, EngineError>> },
    /// Look at the state after the commit.
    Read(Read),
}

/// A look at the state, and what is to be said of it.
pub(crate) type Read = Box<dyn FnOnce(&Reading<'_>) -> Saying + Send>;

/// The durable state, between two commits.
pub(crate) struct Reading<'a> {
    pub(crate) state: &'a State,
    pub(crate) halls: &'a [Arc<Hall>],
}

/// What callers and the writer share.
pub(crate) struct Shared {
    pub(crate) queue: Queue<Job>,
    pub(crate) clock: Clock,
    pub(crate) key: SecretKey,
    pub(crate) keys: Keys,
    pub(crate) meters: Meters,
    pub(crate) closed: AtomicBool,
    pub(crate) changes_kept: Arc<AtomicUsize>,
    /// Reads answers beside the writer.
    pub(crate) reader: Mutex<Connection>,
    halls: RwLock<Halls>,
    next_due: AtomicU64,
}

#[derive(Default)]
struct Halls {
    by_id: HashMap<Name, Arc<Hall>>,
    in_order: Vec<Arc<Hall>>,
}

impl Shared {
    pub(crate) fn new(queue_length_max: usize, clock: Clock, key: SecretKey, reader: Connection) -> Self {
        let meters = Meters::default();
        Self {
            queue: Queue::new(queue_length_max, meters.queue_depth.clone()),
            clock,
            key,
            keys: Keys::default(),
            meters,
            closed: AtomicBool::new(false),
            changes_kept: Arc::default(),
            reader: Mutex::new(reader),
            halls: RwLock::default(),
            next_due: AtomicU64::new(u64::MAX),
        }
    }

    pub(crate) fn hall(&self, id: &str) -> Option<Arc<Hall>> {
        self.halls.read().unwrap_or_else(PoisonError::into_inner).by_id.get(id).cloned()
    }

    pub(crate) fn hall_at(&self, place: usize) -> Option<Arc<Hall>> {
        self.halls.read().unwrap_or_else(PoisonError::into_inner).in_order.get(place).cloned()
    }

    pub(crate) fn halls(&self) -> Vec<Arc<Hall>> {
        self.halls.read().unwrap_or_else(PoisonError::into_inner).in_order.clone()
    }

    pub(crate) fn add_hall(&self, hall: Arc<Hall>) {
        let mut halls = self.halls.write().unwrap_or_else(PoisonError::into_inner);
        halls.by_id.insert(hall.venue.id.clone(), Arc::clone(&hall));
        halls.in_order.push(hall);
    }

    pub(crate) fn set_next_due(&self, due: Option<Timestamp>) {
        self.next_due.store(due.map_or(u64::MAX, Timestamp::as_millis), Ordering::Release);
    }

    /// Whether no hold is over and still counted.
    pub(crate) fn nothing_due(&self, now: Timestamp) -> bool {
        now.as_millis() < self.next_due.load(Ordering::Acquire)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("closed", &self.closed).finish_non_exhaustive()
    }
}
