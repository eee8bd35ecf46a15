//! The report of a run: everything that was measured, for machines (`--json`) and for people.

mod canvas;
mod charts;
mod page;
mod scale;
mod table;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use leasehold_api::{PoolCount, SeatCounts};
use serde::Serialize;

use super::event::Snapshot;
use super::tally::{Kind, Outcome, Second, Series, Tally};
use super::verdict::Verdict;

pub(crate) use scale::thousands;

/// The run that others published for the same task: 200 users, 10 seconds, 3 seats, on another machine.
const PUBLISHED_REQUESTS: u64 = 5_718;
const PUBLISHED_SECONDS: f64 = 10.0;
const PUBLISHED_MEAN_MS: f64 = 144.0;

/// Everything that one run measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    /// What was run.
    pub(crate) setup: Setup,
    /// Whether Ctrl-C ended it early.
    pub(crate) interrupted: bool,
    /// How long it took, the last answers included.
    pub(crate) elapsed_ms: f64,
    /// Requests sent, repeats included. `outcomes` adds up to it.
    pub(crate) requests: u64,
    /// Requests that repeated one whose outcome was unknown.
    pub(crate) repeats: u64,
    /// Requests sent per second.
    pub(crate) requests_per_second: f64,
    /// In an open loop: holds that were due and could not be sent, because no connection was free.
    pub(crate) holds_not_sent: Option<u64>,
    /// Requests by kind and outcome, the most frequent first.
    pub(crate) outcomes: Vec<OutcomeCount>,
    /// Latencies: of all answers, then of each series.
    pub(crate) latency: Vec<Latency>,
    /// Requests by the second in which they ended.
    pub(crate) seconds: Vec<Second>,
    /// The seats after the run, as the server counts them.
    pub(crate) seats: Option<SeatCounts>,
    /// The pools after the run, as the server counts them.
    pub(crate) pools: Vec<PoolCount>,
    /// The published run beside this one.
    pub(crate) published: Comparison,
    /// Whether the server kept its promises.
    pub(crate) verdict: Verdict,
}

/// What was run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Setup {
    /// The server.
    pub(crate) target: String,
    /// The event.
    pub(crate) event: String,
    /// How users chose.
    pub(crate) shape: String,
    /// Seats fought for.
    pub(crate) seats: u64,
    /// Units fought for.
    pub(crate) pool: Option<u32>,
    /// Users, each with a connection.
    pub(crate) users: u32,
    /// How long it was to run.
    pub(crate) duration_ms: u64,
    /// Holds per second in an open loop; none in a closed one.
    pub(crate) rate: Option<f64>,
    /// Whether holds were bought.
    pub(crate) confirm: bool,
}

/// How many requests ended in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct OutcomeCount {
    /// `hold` or `confirm`.
    pub(crate) kind: &'static str,
    /// The HTTP status; none when no answer came.
    pub(crate) status: Option<u16>,
    /// The problem's code, or `unreachable` or `unknown` when no answer came.
    pub(crate) code: Option<&'static str>,
    /// How many.
    pub(crate) count: u64,
}

/// How long answers took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Latency {
    /// Which answers.
    pub(crate) of: &'static str,
    /// How many.
    pub(crate) count: u64,
    /// The mean.
    pub(crate) mean_ms: f64,
    /// Half of them were faster.
    pub(crate) p50_ms: f64,
    /// 90 of 100 were faster.
    pub(crate) p90_ms: f64,
    /// 99 of 100 were faster.
    pub(crate) p99_ms: f64,
    /// 999 of 1,000 were faster.
    pub(crate) p999_ms: f64,
    /// The slowest.
    pub(crate) max_ms: f64,
    /// Percentiles and their latencies in ms, for drawing.
    pub(crate) curve: Vec<(f64, f64)>,
}

/// The published run's figures, and ours as multiples of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// Its requests, in 10 seconds.
    pub(crate) requests: u64,
    /// Its mean latency.
    pub(crate) mean_ms: f64,
    /// Our requests per second divided by its.
    pub(crate) requests_per_second_ratio: f64,
    /// Its mean latency divided by ours.
    pub(crate) mean_ratio: Option<f64>,
}

/// What a report is made of.
#[derive(Debug)]
pub(crate) struct Material<'a> {
    /// What was run.
    pub(crate) setup: Setup,
    /// Whether Ctrl-C ended it early.
    pub(crate) interrupted: bool,
    /// From the start to the last answer.
    pub(crate) elapsed: Duration,
    /// Every request.
    pub(crate) tally: &'a Tally,
    /// Holds due and not sent, in an open loop.
    pub(crate) holds_not_sent: Option<u64>,
    /// The event after the run, if it could be read.
    pub(crate) after: Option<&'a Snapshot>,
    /// The verdict.
    pub(crate) verdict: Verdict,
}

impl Report {
    /// Puts the figures together.
    ///
    /// # Panics
    /// When the outcomes do not add up to the requests sent.
    pub(crate) fn new(material: Material<'_>) -> Self {
        let tally = material.tally;
        tally.assert_adds_up();
        let seconds = material.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        let requests_per_second = tally.sent as f64 / seconds;
        let latency = latencies(tally);
        let mean_ms = latency.first().filter(|all| all.count > 0).map(|all| all.mean_ms);
        Self {
            setup: material.setup,
            interrupted: material.interrupted,
            elapsed_ms: seconds * 1000.0,
            requests: tally.sent,
            repeats: tally.repeats,
            requests_per_second,
            holds_not_sent: material.holds_not_sent,
            outcomes: outcomes(tally),
            latency,
            seconds: tally.seconds.clone(),
            seats: material.after.map(|after| after.seats),
            pools: material.after.map(|after| after.pools.clone()).unwrap_or_default(),
            published: Comparison {
                requests: PUBLISHED_REQUESTS,
                mean_ms: PUBLISHED_MEAN_MS,
                requests_per_second_ratio: requests_per_second
                    / (PUBLISHED_REQUESTS as f64 / PUBLISHED_SECONDS),
                mean_ratio: mean_ms.map(|mean_ms| PUBLISHED_MEAN_MS / mean_ms),
            },
            verdict: material.verdict,
        }
    }

    /// What the command returns to the shell: 0 when the server kept its promises, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        if self.verdict.passed { 0 } else { 1 }
    }

    /// The report as tables for a terminal.
    pub(crate) fn to_text(&self) -> String {
        table::render(self)
    }

    /// The report as a picture that needs nothing else.
    pub(crate) fn to_svg(&self) -> String {
        page::svg(self)
    }

    /// The picture in a web page that needs nothing else.
    pub(crate) fn to_html(&self) -> String {
        page::html(self)
    }

    /// Writes the picture, or the page around it, by the file's ending.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let document = match Drawing::of(path)? {
            Drawing::Svg => self.to_svg(),
            Drawing::Html => self.to_html(),
        };
        std::fs::write(path, document).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// What a report file can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drawing {
    /// A picture.
    Svg,
    /// A page with the picture.
    Html,
}

impl Drawing {
    /// What this file is to be, by its ending.
    pub(crate) fn of(path: &Path) -> anyhow::Result<Self> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("html") => Ok(Self::Html),
            _ => bail!("a report ends in .svg or .html, and {} does not", path.display()),
        }
    }
}

fn outcomes(tally: &Tally) -> Vec<OutcomeCount> {
    let mut outcomes: Vec<OutcomeCount> = tally
        .counts
        .iter()
        .map(|count| {
            let kind = match count.kind {
                Kind::Hold => "hold",
                Kind::Confirm => "confirm",
            };
            let (status, code) = match count.outcome {
                Outcome::Answered { status, code } => (Some(status), code.map(leasehold_api::Code::as_str)),
                Outcome::Unreachable => (None, Some("unreachable")),
                Outcome::Unknown => (None, Some("unknown")),
            };
            OutcomeCount { kind, status, code, count: count.count }
        })
        .collect();
    outcomes.sort_by_key(|outcome| {
        (std::cmp::Reverse(outcome.count), outcome.kind, outcome.status, outcome.code)
    });
    outcomes
}

fn latencies(tally: &Tally) -> Vec<Latency> {
    let series = [
        ("hold granted", tally.latencies_us(Series::HoldGranted)),
        ("hold refused", tally.latencies_us(Series::HoldRefused)),
        ("confirm", tally.latencies_us(Series::Confirm)),
    ];
    let mut all = Histogram::<u32>::new(3).expect("three significant digits are within the library's five");
    for (_, histogram) in series {
        all.add(histogram).expect("histograms that resize themselves take any value");
    }
    let seen = series.into_iter().filter(|(_, histogram)| !histogram.is_empty());
    std::iter::once(("all answers", &all)).chain(seen).map(|(of, histogram)| latency(of, histogram)).collect()
}

fn latency(of: &'static str, histogram: &Histogram<u32>) -> Latency {
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    let percentiles = scale::curve_percentiles(histogram.len());
    Latency {
        of,
        count: histogram.len(),
        mean_ms: histogram.mean() / 1000.0,
        p50_ms: at(0.5),
        p90_ms: at(0.9),
        p99_ms: at(0.99),
        p999_ms: at(0.999),
        max_ms: histogram.max() as f64 / 1000.0,
        curve: percentiles.into_iter().map(|percentile| (percentile, at(percentile / 100.0))).collect(),
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
