//! How long a lease should be, learned from how long locks were really held.
//!
//! Hold times are gathered per class of names (`order` of `order:123`), because one job's minutes say
//! nothing about another's milliseconds.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Classes that are told apart; the rest share one.
const CLASSES_MAX: usize = 128;
const OTHER: &str = "*";
/// Fewer samples than this are no ground for advice.
const SAMPLES_MIN: u64 = 20;
const TTL_MIN: Duration = Duration::from_secs(3);
const HOLD_MILLIS_MAX: u64 = 24 * 60 * 60 * 1_000;

/// What is known about the hold times of a class of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// How long a lease should be: three times the time within which 99 of 100 were given back, at least
    /// 3 s.
    pub ttl: Duration,
    /// The time within which 99 of 100 were given back.
    pub hold_p99: Duration,
    /// How many were measured.
    pub samples: u64,
}

/// Hold times per class, bounded in memory.
#[derive(Debug, Default)]
pub(crate) struct Advisor(Mutex<HashMap<Box<str>, Histogram<u32>>>);

impl Advisor {
    pub(crate) fn note(&self, class: &str, held: Duration) {
        let millis = u64::try_from(held.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX).max(1);
        let mut classes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(histogram) = classes.get_mut(class) {
            return histogram.saturating_record(millis);
        }
        let class = if classes.len() < CLASSES_MAX { class } else { OTHER };
        let fresh = Histogram::new_with_bounds(1, HOLD_MILLIS_MAX, 2).expect("the bounds are in order");
        classes.entry(class.into()).or_insert(fresh).saturating_record(millis);
    }

    pub(crate) fn advise(&self, class: &str) -> Option<Advice> {
        let classes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = classes.get(class).or_else(|| classes.get(OTHER))?;
        if histogram.len() < SAMPLES_MIN {
            return None;
        }
        let hold_p99 = Duration::from_millis(histogram.value_at_quantile(0.99));
        Some(Advice { ttl: (hold_p99 * 3).max(TTL_MIN), hold_p99, samples: histogram.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_three_times_p99_and_at_least_three_seconds() {
        let advisor = Advisor::default();
        assert_eq!(advisor.advise("order"), None);
        for _ in 0..1_000 {
            advisor.note("order", Duration::from_millis(40));
            advisor.note("report", Duration::from_secs(60));
        }
        let (order, report) = (advisor.advise("order").unwrap(), advisor.advise("report").unwrap());
        assert_eq!(order.ttl, Duration::from_secs(3));
        assert!(report.ttl.as_secs().abs_diff(180) <= 3, "{report:?}");
        assert_eq!(report.samples, 1_000);
    }

    #[test]
    fn many_classes_share_one_place() {
        let advisor = Advisor::default();
        for class in 0..10_000 {
            advisor.note(&format!("class-{class}"), Duration::from_secs(5));
        }
        assert_eq!(advisor.0.lock().unwrap().len(), CLASSES_MAX + 1);
        assert_eq!(advisor.advise("class-9999").unwrap().ttl.as_secs(), 15);
    }
}
