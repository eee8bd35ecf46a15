//! How long answers take, counted without a lock: this is done for every request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Upper ends of the buckets in seconds; the last one takes the rest.
const ENDS: [f64; 17] = [
    0.000_02,
    0.000_05,
    0.000_1,
    0.000_2,
    0.000_5,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    5.0,
    f64::INFINITY,
];

/// A histogram of durations. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Durations(Arc<Inside>);

#[derive(Debug, Default)]
struct Inside {
    counts: [AtomicU64; ENDS.len()],
    sum_micros: AtomicU64,
}

impl Durations {
    pub(crate) fn observe(&self, seconds: f64) {
        let bucket = ENDS.partition_point(|end| *end < seconds).min(ENDS.len() - 1);
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum_micros.fetch_add((seconds * 1e6) as u64, Ordering::Relaxed);
    }
}

impl Collector for Durations {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Time from a request's head to its answer";
        let metric = encoder.encode_descriptor("request_seconds", help, None, MetricType::Histogram)?;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let buckets: Vec<(f64, u64)> = ENDS.iter().copied().zip(self.0.counts.iter().map(read)).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = read(&self.0.sum_micros) as f64 / 1e6;
        let mut metric = metric;
        metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn every_duration_has_its_bucket() {
        let durations = Durations::default();
        for seconds in [0.0, 0.000_02, 0.000_03, 0.7, 99.0] {
            durations.observe(seconds);
        }
        let mut registry = Registry::with_prefix("leasehold_http");
        registry.register_collector(Box::new(durations));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = |end: &str| format!("leasehold_http_request_seconds_bucket{{le=\"{end}\"}}");
        for (end, count) in [("0.00002", 2), ("0.00005", 3), ("0.5", 3), ("1.0", 4), ("5.0", 4), ("+Inf", 5)]
        {
            assert!(text.contains(&format!("{} {count}", line(end))), "{end}: {text}");
        }
        assert!(text.contains("leasehold_http_request_seconds_count 5"), "{text}");
    }
}
