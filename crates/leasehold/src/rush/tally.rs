//! What was sent and what came back: counts, rates over time and latencies.
//!
//! Every user keeps a [`Tally`] of its own, so that counting costs no lock; at the end they are merged.
//! Invariant: the outcomes add up to the requests sent, always ([`Tally::assert_adds_up`]).

use std::time::Duration;

use hdrhistogram::Histogram;
use leasehold_api::Code;
use leasehold_client::{Response, TransportError};

/// Why recording and merging cannot fail.
const HISTOGRAM_GROWS: &str = "histograms that resize themselves take any latency of a run";

/// What a request wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Hold a seat or a unit.
    Hold,
    /// Turn a hold into a sale.
    Confirm,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The server answered, with a problem's code when it refused.
    Answered {
        /// The HTTP status.
        status: u16,
        /// The problem's code, when it is one of the API's.
        code: Option<Code>,
    },
    /// No connection: the request did not leave.
    Unreachable,
    /// It left, or part of it, and no answer came.
    Unknown,
}

/// How the report groups outcomes over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Any 2xx.
    Granted,
    /// 409 and every other 4xx but 429.
    Refused,
    /// 429.
    Limited,
    /// 5xx, and requests without an answer.
    Failed,
}

/// Requests whose latencies are shown together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Series {
    /// Holds that were granted: these wait for the disk.
    HoldGranted,
    /// Holds that were answered otherwise.
    HoldRefused,
    /// Confirms, however answered.
    Confirm,
}

/// How many requests of one kind ended in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    /// What they wanted.
    pub(crate) kind: Kind,
    /// How they ended.
    pub(crate) outcome: Outcome,
    /// How many.
    pub(crate) count: u64,
}

/// One second of the run: how many requests ended, by [`Class`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Second {
    /// Requests granted.
    pub(crate) granted: u64,
    /// Requests refused.
    pub(crate) refused: u64,
    /// Requests over a limit.
    pub(crate) limited: u64,
    /// Requests failed.
    pub(crate) failed: u64,
}

/// The counts of one user, or of all.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Requests sent, repeats included.
    pub(crate) sent: u64,
    /// Requests that repeated one with an unknown outcome.
    pub(crate) repeats: u64,
    /// The outcomes seen. A handful, so a list is faster than a map.
    pub(crate) counts: Vec<Count>,
    /// Outcomes by the second in which they came, from the start of the run.
    pub(crate) seconds: Vec<Second>,
    hold_granted_us: Histogram<u32>,
    hold_refused_us: Histogram<u32>,
    confirm_us: Histogram<u32>,
}

impl Outcome {
    /// How a request ended that came back like this.
    pub(crate) fn of(result: &Result<Response, TransportError>) -> Self {
        match result {
            Ok(response) => {
                let refused = !(200..300).contains(&response.status);
                let code = if refused { code_of(&response.body) } else { None };
                Self::Answered { status: response.status, code }
            }
            Err(TransportError::Unknown { .. }) => Self::Unknown,
            Err(TransportError::Unreachable { .. } | TransportError::Malformed { .. }) => Self::Unreachable,
        }
    }

    /// The group it is shown in.
    pub(crate) fn class(self) -> Class {
        match self {
            Self::Answered { status: 200..300, .. } => Class::Granted,
            Self::Answered { status: 429, .. } => Class::Limited,
            Self::Answered { status: 100..500, .. } => Class::Refused,
            Self::Answered { .. } | Self::Unreachable | Self::Unknown => Class::Failed,
        }
    }

    /// Whether it is a 5xx other than a 503 that says what it means.
    pub(crate) fn is_server_error(self) -> bool {
        match self {
            Self::Answered { status: 503, code: Some(Code::Overloaded | Code::OutcomeUnknown) } => false,
            Self::Answered { status, .. } => status >= 500,
            Self::Unreachable | Self::Unknown => false,
        }
    }
}

impl Second {
    /// All requests that ended in it.
    pub(crate) fn total(&self) -> u64 {
        self.granted + self.refused + self.limited + self.failed
    }

    /// Adds another second's requests.
    pub(crate) fn add(&mut self, other: &Self) {
        self.granted += other.granted;
        self.refused += other.refused;
        self.limited += other.limited;
        self.failed += other.failed;
    }
}

impl Tally {
    /// Nothing sent yet.
    pub(crate) fn new() -> Self {
        let histogram = || Histogram::new(3).expect("three significant digits are within the library's five");
        Self {
            sent: 0,
            repeats: 0,
            counts: Vec::new(),
            seconds: Vec::new(),
            hold_granted_us: histogram(),
            hold_refused_us: histogram(),
            confirm_us: histogram(),
        }
    }

    /// Records how a request ended, `since_start` into the run and `latency` after it was due.
    pub(crate) fn record(&mut self, kind: Kind, outcome: Outcome, since_start: Duration, latency: Duration) {
        self.count(kind, outcome, 1);
        let second = since_start.as_secs() as usize;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, Second::default());
        }
        let second = &mut self.seconds[second];
        match outcome.class() {
            Class::Granted => second.granted += 1,
            Class::Refused => second.refused += 1,
            Class::Limited => second.limited += 1,
            Class::Failed => second.failed += 1,
        }
        // The time until a request was given up says nothing about how fast answers are.
        if let Outcome::Answered { .. } = outcome {
            let series = match (kind, outcome.class()) {
                (Kind::Confirm, _) => &mut self.confirm_us,
                (Kind::Hold, Class::Granted) => &mut self.hold_granted_us,
                (Kind::Hold, Class::Refused | Class::Limited | Class::Failed) => &mut self.hold_refused_us,
            };
            // `saturating_record` would clamp to the range so far instead of growing it.
            series.record(latency.as_micros() as u64).expect(HISTOGRAM_GROWS);
        }
    }

    /// The latencies of one series in microseconds.
    pub(crate) fn latencies_us(&self, series: Series) -> &Histogram<u32> {
        match series {
            Series::HoldGranted => &self.hold_granted_us,
            Series::HoldRefused => &self.hold_refused_us,
            Series::Confirm => &self.confirm_us,
        }
    }

    /// Adds another user's counts.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.repeats += other.repeats;
        for count in &other.counts {
            self.count(count.kind, count.outcome, count.count);
        }
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), Second::default());
        }
        for (mine, others) in self.seconds.iter_mut().zip(&other.seconds) {
            mine.add(others);
        }
        self.hold_granted_us.add(&other.hold_granted_us).expect(HISTOGRAM_GROWS);
        self.hold_refused_us.add(&other.hold_refused_us).expect(HISTOGRAM_GROWS);
        self.confirm_us.add(&other.confirm_us).expect(HISTOGRAM_GROWS);
    }

    /// How many requests ended in a way that `matches`.
    pub(crate) fn count_where(&self, matches: impl Fn(Kind, Outcome) -> bool) -> u64 {
        self.counts.iter().filter(|count| matches(count.kind, count.outcome)).map(|count| count.count).sum()
    }

    /// Checks that no request is missing and none is counted twice.
    ///
    /// # Panics
    /// When the outcomes do not add up to the requests sent.
    pub(crate) fn assert_adds_up(&self) {
        let ended = self.count_where(|_, _| true);
        assert_eq!(ended, self.sent, "statuses and transport errors add up to the requests sent");
        let in_time: u64 = self.seconds.iter().map(Second::total).sum();
        assert_eq!(in_time, self.sent, "the seconds add up to the requests sent");
    }

    fn count(&mut self, kind: Kind, outcome: Outcome, more: u64) {
        match self.counts.iter_mut().find(|count| count.kind == kind && count.outcome == outcome) {
            Some(count) => count.count += more,
            None => self.counts.push(Count { kind, outcome, count: more }),
        }
    }
}

/// Reads only the code, without copying the rest of the document: this runs for every loser.
fn code_of(body: &[u8]) -> Option<Code> {
    #[derive(serde::Deserialize)]
    struct OnlyCode<'a> {
        #[serde(borrow)]
        code: std::borrow::Cow<'a, str>,
    }
    let document: OnlyCode<'_> = serde_json::from_slice(body).ok()?;
    Code::ALL.into_iter().find(|code| code.as_str() == document.code)
}

#[cfg(test)]
#[path = "tally_tests.rs"]
mod tests;
