//! What every handler can reach, and no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderValue;
use leasehold_engine::{Engine, SecretKey};
use leasehold_lock::Locker;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::body::LargeBodies;
use crate::config::ServerConfig;
use crate::http::{AvailabilityCache, Pages, VenueCache};
use crate::limits::Limits;
use crate::locks::Locks;
use crate::meters::HttpMeters;
use crate::recent::{Recent, TROUBLES_MAX, Trouble};
use crate::rush::RushDesk;

/// Shared by all handlers.
pub(crate) type App = Arc<AppState>;

/// See [`App`].
pub(crate) struct AppState {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) locks: Locks,
    /// For idempotency keys; the same on all servers of a ledger.
    pub(crate) key_for_keys: SecretKey,
    pub(crate) config: ServerConfig,
    pub(crate) limits: Limits,
    pub(crate) meters: HttpMeters,
    pub(crate) registry: Registry,
    pub(crate) availability: AvailabilityCache,
    pub(crate) venues: VenueCache,
    pub(crate) pages: Pages,
    pub(crate) large_bodies: LargeBodies,
    pub(crate) troubles: Recent<Trouble>,
    pub(crate) rush: RushDesk,
    /// Another one for each process: tells whose counters are read.
    pub(crate) instance: HeaderValue,
    /// Cancelled when the server stops: streams end then.
    pub(crate) stopping: CancellationToken,
    requests: AtomicUsize,
    streams: AtomicUsize,
}

/// One of a bounded number, given back when dropped.
pub(crate) struct Permit {
    app: App,
    of: fn(&AppState) -> &AtomicUsize,
}

/// The same for a stream, with the meter of those that are open.
pub(crate) struct StreamPermit(Permit);

impl AppState {
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        locker: Locker,
        config: ServerConfig,
        stopping: CancellationToken,
    ) -> Self {
        let meters = HttpMeters::default();
        let locks = Locks::new(locker, engine.key_for("locks"), engine.key_of_process("lock owners"));
        let mut registry = Registry::default();
        engine.meters().register(&mut registry);
        meters.register(&mut registry);
        locks.register(&mut registry);
        Self {
            limits: Limits::new(&config),
            pages: Pages::new(&config),
            key_for_keys: engine.key_for("idempotency keys"),
            engine,
            locks,
            config,
            meters,
            registry,
            availability: AvailabilityCache::default(),
            venues: VenueCache::default(),
            large_bodies: LargeBodies::default(),
            troubles: Recent::new(TROUBLES_MAX),
            rush: RushDesk::default(),
            instance: HeaderValue::from(uuid::Uuid::new_v4().as_u64_pair().0),
            stopping,
            requests: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
        }
    }

    /// Leave to work on one more request; none when too many are being worked on.
    pub(crate) fn request_permit(self: &Arc<Self>) -> Option<Permit> {
        Permit::take(self, |app| &app.requests, self.config.requests_max)
    }

    /// Leave to open one more stream, which is counted until that is dropped.
    pub(crate) fn stream_permit(self: &Arc<Self>) -> Option<StreamPermit> {
        let permit = Permit::take(self, |app| &app.streams, self.config.streams_max)?;
        self.meters.streams.inc();
        Some(StreamPermit(permit))
    }
}

impl Permit {
    fn take(app: &App, of: fn(&AppState) -> &AtomicUsize, max: usize) -> Option<Self> {
        let permit = Self { app: Arc::clone(app), of };
        (of(app).fetch_add(1, Ordering::Relaxed) < max).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        (self.of)(&self.app).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.app.meters.streams.dec();
    }
}
