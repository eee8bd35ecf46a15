//! What the server counts beside the engine.

mod durations;

use std::sync::atomic::{AtomicI64, AtomicU64};

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use self::durations::Durations;

/// The server's counters.
#[derive(Debug, Clone)]
pub(crate) struct HttpMeters {
    pub(crate) connections: Gauge<i64, AtomicI64>,
    pub(crate) streams: Gauge<i64, AtomicI64>,
    pub(crate) turned_away: Counter,
    pub(crate) timed_out: Counter,
    seconds: Durations,
    responses: Family<Status, Counter>,
    /// The statuses of 100 to 599, looked up once.
    by_status: Vec<Option<Counter>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    status: u16,
}

/// Statuses that the server gives.
const STATUSES: [u16; 22] = [
    200, 201, 204, 304, 400, 404, 405, 408, 409, 410, 412, 413, 415, 422, 429, 431, 500, 501, 502, 503, 504,
    505,
];

impl Default for HttpMeters {
    fn default() -> Self {
        let responses = Family::<Status, Counter<u64, AtomicU64>>::default();
        let mut by_status = vec![None; 600];
        for status in STATUSES {
            by_status[usize::from(status)] = Some(responses.get_or_create(&Status { status }).clone());
        }
        Self {
            connections: Gauge::default(),
            streams: Gauge::default(),
            turned_away: Counter::default(),
            timed_out: Counter::default(),
            seconds: Durations::default(),
            responses,
            by_status,
        }
    }
}

impl HttpMeters {
    /// Counts an answer, and its time unless it took as long as its client wanted.
    pub(crate) fn answered(&self, status: StatusCode, seconds: Option<f64>) {
        if let Some(seconds) = seconds {
            self.seconds.observe(seconds);
        }
        let _total = match self.by_status.get(usize::from(status.as_u16())) {
            Some(Some(counter)) => counter.inc(),
            _ => self.responses.get_or_create(&Status { status: status.as_u16() }).inc(),
        };
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("leasehold_http");
        registry.register("responses", "Answers by status", self.responses.clone());
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register("streams", "Open streams", self.streams.clone());
        registry.register("turned_away", "Requests and connections turned away", self.turned_away.clone());
        registry.register_collector(Box::new(self.seconds.clone()));
        registry.register("timed_out", "Connections that took too long", self.timed_out.clone());
    }
}
