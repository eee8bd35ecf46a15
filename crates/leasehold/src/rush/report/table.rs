//! The report on the terminal.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::scale::{milliseconds, thousands, times};
use super::{OutcomeCount, Report};

/// The whole report: requests by answer, latencies, the published run beside this one, and the verdict.
pub(super) fn render(report: &Report) -> String {
    let setup = &report.setup;
    let mut text = String::new();
    let mut line = |words: String| writeln!(text, "{words}").expect("a String takes all that is written");
    line(format!("Rush on {}, event {}: {}", setup.target, setup.event, super::page::setup_in_words(report)));
    line(String::new());
    line(outcomes(report).to_string());
    line(sum_in_words(report));
    line(String::new());
    line(latencies(report).to_string());
    line(String::new());
    line(comparison(report).to_string());
    line("The published run had 200 users, 10 s and 3 seats, on another machine.".to_owned());
    line(String::new());
    line(format!("{}, {}", report.verdict.headline(), report.verdict.subline()));
    for complaint in &report.verdict.complaints {
        line(format!("  - {complaint}"));
    }
    text
}

/// That nothing is missing: `5,718 sent = 5,718 answered + 0 without an answer`.
pub(super) fn sum_in_words(report: &Report) -> String {
    let unanswered = |outcome: &&OutcomeCount| outcome.status.is_none();
    let without: u64 = report.outcomes.iter().filter(unanswered).map(|outcome| outcome.count).sum();
    let sent = thousands(report.requests);
    let answered = thousands(report.requests - without);
    let repeats = match report.repeats {
        0 => String::new(),
        repeats => format!("; {} were repeats", thousands(repeats)),
    };
    let not_sent = match report.holds_not_sent {
        None | Some(0) => String::new(),
        Some(holds) => format!("; {} more holds were due and found no free connection", thousands(holds)),
    };
    format!("{sent} sent = {answered} answered + {} without an answer{repeats}{not_sent}", thousands(without))
}

/// A share in percent; what is more than nothing does not look like nothing.
pub(super) fn share_in_words(percent: f64) -> String {
    if percent > 0.0 && percent < 0.005 { "< 0.01 %".to_owned() } else { format!("{percent:.2} %") }
}

fn outcomes(report: &Report) -> Table {
    let mut table = table(["request", "status", "code", "count", "share"], 3);
    for outcome in &report.outcomes {
        let share = 100.0 * outcome.count as f64 / report.requests.max(1) as f64;
        table.add_row([
            Cell::new(outcome.kind),
            Cell::new(outcome.status.map_or("none".to_owned(), |status| status.to_string())),
            Cell::new(outcome.code.unwrap_or("")),
            right(thousands(outcome.count)),
            right(share_in_words(share)),
        ]);
    }
    table
}

fn latencies(report: &Report) -> Table {
    let mut table = table(["latency in ms", "count", "mean", "p50", "p90", "p99", "p99.9", "max"], 1);
    for latency in &report.latency {
        let figures = [
            latency.mean_ms,
            latency.p50_ms,
            latency.p90_ms,
            latency.p99_ms,
            latency.p999_ms,
            latency.max_ms,
        ];
        let mut row = vec![Cell::new(latency.of), right(thousands(latency.count))];
        row.extend(figures.map(|figure| right(milliseconds(figure))));
        table.add_row(row);
    }
    table
}

fn comparison(report: &Report) -> Table {
    let mut table = table(["", "this run", "published run", "better by"], 1);
    let published = &report.published;
    let seconds = report.elapsed_ms / 1000.0;
    let mean = report.latency.first().filter(|all| all.count > 0).map(|all| all.mean_ms);
    table.add_row([
        Cell::new("requests"),
        right(format!("{} in {seconds:.1} s", thousands(report.requests))),
        right(format!("{} in 10 s", thousands(published.requests))),
        right(String::new()),
    ]);
    table.add_row([
        Cell::new("requests/s"),
        right(thousands(report.requests_per_second.round() as u64)),
        right(thousands((published.requests as f64 / 10.0).round() as u64)),
        right(times(published.requests_per_second_ratio)),
    ]);
    table.add_row([
        Cell::new("mean latency, ms"),
        right(mean.map_or("none".to_owned(), milliseconds)),
        right(milliseconds(published.mean_ms)),
        right(published.mean_ratio.map_or(String::new(), times)),
    ]);
    table
}

/// A table whose columns from `figures_from` on are figures.
fn table<const N: usize>(header: [&str; N], figures_from: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(header.iter().enumerate().map(|(column, title)| {
        let cell = Cell::new(title);
        if column >= figures_from { cell.set_alignment(CellAlignment::Right) } else { cell }
    }));
    table
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}
