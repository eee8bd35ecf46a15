//! How well this server sees the ledger: whether it answers, and how old what readers see is.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::Clock;

/// Readers that were up to date so recently are so now, as far as anybody can say.
const CURRENT_FOR: Duration = Duration::from_secs(1);

/// See this module's documentation. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct Sight {
    inside: Arc<Inside>,
    /// Times that the ledger stopped answering.
    lost: Counter,
    /// Connections made, the first ones included.
    pub(crate) connections: Counter,
    /// Transactions tried again: they met a lock or a lost connection, and nothing had happened.
    pub(crate) tried_again: Counter,
    /// Commands whose connection was lost after their commit was sent.
    pub(crate) in_doubt: Counter,
}

#[derive(Debug)]
struct Inside {
    /// Counts also while the machine sleeps, so that what is shown after that is known to be old.
    clock: Clock,
    /// When the readers last knew the whole log, by `clock`.
    current_at: AtomicU64,
    /// Whether the last look at the ledger succeeded.
    up: AtomicBool,
}

impl Sight {
    /// Of a ledger that was just seen.
    pub(crate) fn new() -> Self {
        let clock = Clock::system();
        let current_at = AtomicU64::new(clock.now().as_millis());
        Self {
            inside: Arc::new(Inside { clock, current_at, up: AtomicBool::new(true) }),
            lost: Counter::default(),
            connections: Counter::default(),
            tried_again: Counter::default(),
            in_doubt: Counter::default(),
        }
    }

    /// The time of this machine, to be given to [`Self::note_current`].
    pub(crate) fn now(&self) -> Timestamp {
        self.inside.clock.now()
    }

    /// The readers know everything that was in the log then.
    pub(crate) fn note_current(&self, at: Timestamp) {
        self.inside.current_at.fetch_max(at.as_millis(), Ordering::SeqCst);
    }

    /// How long ago the readers last knew the whole log, unless that was just now.
    pub(crate) fn behind(&self) -> Option<Duration> {
        Some(self.inside.since_current()).filter(|behind| *behind >= CURRENT_FOR)
    }

    pub(crate) fn note_up(&self, up: bool) {
        if self.inside.up.swap(up, Ordering::SeqCst) == up {
            return;
        }
        if up {
            tracing::info!("the ledger answers");
        } else {
            self.lost.inc();
            tracing::warn!("the ledger does not answer");
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.inside.up.load(Ordering::SeqCst)
    }

    /// Makes it visible in a registry.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("lost", "Times that the ledger stopped answering", self.lost.clone());
        registry.register("connections", "Connections made to the ledger", self.connections.clone());
        registry.register("tried_again", "Transactions tried again", self.tried_again.clone());
        registry.register("in_doubt", "Commands whose commit was not answered", self.in_doubt.clone());
        registry.register_collector(Box::new(self.clone()));
    }
}

impl Inside {
    fn since_current(&self) -> Duration {
        let now = self.clock.now().as_millis();
        Duration::from_millis(now.saturating_sub(self.current_at.load(Ordering::SeqCst)))
    }
}

impl Collector for Sight {
    /// What is true at this moment, also while whoever looks at the ledger waits for its answer.
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let up = ConstGauge::new(i64::from(self.is_up()));
        let metric = encoder.encode_descriptor("up", "Whether the ledger answers", None, up.metric_type())?;
        up.encode(metric)?;
        let behind = ConstGauge::new(self.inside.since_current().as_secs_f64());
        let help = "Since readers last knew the whole log";
        let metric = encoder.encode_descriptor("behind", help, Some(&Unit::Seconds), behind.metric_type())?;
        behind.encode(metric)
    }
}
