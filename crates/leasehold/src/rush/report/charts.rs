//! The two charts: latency by percentile, and requests per second over time.

use super::super::tally::Second;
use super::canvas::{Anchor, Area, Canvas, at};
use super::scale::{Bar, bars, milliseconds, percentile_position, thousands, tick_label, ticks};
use super::{Latency, Report};

/// A series with fewer values has no percentiles worth a line.
const CURVE_VALUES_MIN: u64 = 100;
/// A bar's part that is not empty is at least this high, so that one failure in a million is seen.
const PART_HEIGHT_MIN: f64 = 2.0;
/// Pixels of a letter in a legend, on average.
const LETTER_WIDTH: f64 = 6.5;

/// The percentiles with a label on the axis.
const PERCENTILES: [(f64, &str); 6] =
    [(0.0, "0 %"), (50.0, "50 %"), (90.0, "90 %"), (99.0, "99 %"), (99.9, "99.9 %"), (99.99, "99.99 %")];

/// The parts of a bar from the bottom up: name, class, and how to read it.
type Part = (&'static str, &'static str, fn(&Second) -> u64);
const PARTS: [Part; 4] = [
    ("refused", "refused", |second| second.refused),
    ("over a limit (429)", "limited", |second| second.limited),
    ("held or sold", "granted", |second| second.granted),
    ("failed (5xx, no answer)", "failed", |second| second.failed),
];

/// An entry of a legend.
struct Entry {
    class: &'static str,
    words: String,
}

/// Draws latency against percentile into `plot`, and its legend above it.
pub(super) fn latency(canvas: &mut Canvas, plot: Area, report: &Report) {
    let curves = curves(&report.latency);
    let highest =
        curves.iter().flat_map(|(_, latency)| &latency.curve).map(|(_, ms)| *ms).fold(0.0, f64::max);
    let ticks = horizontal_grid(canvas, plot, highest, "ms");
    let top = ticks[ticks.len() - 1];
    for (percentile, label) in PERCENTILES {
        let x = plot.left + plot.width * percentile_position(percentile);
        canvas.line(at(x, plot.top), at(x, plot.bottom()), "grid");
        canvas.text(at(x, plot.bottom() + 20.0), Anchor::Middle, "label", label);
    }
    for (class, latency) in &curves {
        let points: Vec<_> = latency
            .curve
            .iter()
            .map(|(percentile, ms)| {
                let x = plot.left + plot.width * percentile_position(*percentile);
                at(x, plot.bottom() - plot.height * ms / top)
            })
            .collect();
        canvas.path(&points, &format!("curve {class}-line"));
    }
    let entries = curves.iter().map(|(class, latency)| {
        let words = format!("{}, mean {} ms", latency.of, milliseconds(latency.mean_ms));
        Entry { class, words }
    });
    legend(canvas, plot, entries.collect());
}

/// Draws requests per second against time into `plot`, and its legend above it.
pub(super) fn throughput(canvas: &mut Canvas, plot: Area, report: &Report) {
    let elapsed = report.elapsed_ms / 1000.0;
    let bars = bars(&report.seconds, elapsed);
    let highest = bars.iter().map(|bar| bar.rate(bar.requests.total())).fold(0.0, f64::max);
    let ticks_up = horizontal_grid(canvas, plot, highest, "per s");
    let top = ticks_up[ticks_up.len() - 1];
    let end = bars.last().map_or(1.0, |bar| bar.from + bar.width);
    for bar in &bars {
        draw_bar(canvas, plot, bar, plot.width / end, plot.height / top);
    }
    canvas.line(at(plot.left, plot.bottom()), at(plot.right(), plot.bottom()), "axis");
    let ticks_right = ticks(end);
    let step = ticks_right[1];
    for tick in ticks_right.into_iter().filter(|tick| *tick <= end * 1.0001) {
        let x = plot.left + plot.width * tick / end;
        canvas.text(
            at(x, plot.bottom() + 20.0),
            Anchor::Middle,
            "label",
            &format!("{} s", tick_label(tick, step)),
        );
    }
    let entries = PARTS.map(|(name, class, read)| {
        let total: u64 = report.seconds.iter().map(read).sum();
        Entry { class, words: format!("{name} {}", thousands(total)) }
    });
    legend(canvas, plot, entries.into());
}

fn draw_bar(canvas: &mut Canvas, plot: Area, bar: &Bar, second_width: f64, request_height: f64) {
    let gap = (bar.width * second_width * 0.12).min(6.0);
    let left = plot.left + bar.from * second_width + gap / 2.0;
    let mut bottom = plot.bottom();
    for (_, class, read) in PARTS {
        let requests = read(&bar.requests);
        if requests == 0 {
            continue;
        }
        let height = (bar.rate(requests) * request_height).max(PART_HEIGHT_MIN);
        bottom -= height;
        let part = Area { left, top: bottom, width: (bar.width * second_width - gap).max(0.5), height };
        canvas.rectangle(part, 0.0, class);
    }
}

/// The series to draw: each that has enough values, or all answers together.
fn curves(latencies: &[Latency]) -> Vec<(&'static str, &Latency)> {
    let (all, series) = match latencies.split_first() {
        Some((all, series)) => (all, series),
        None => return Vec::new(),
    };
    let drawn: Vec<_> = series
        .iter()
        .filter(|latency| latency.count >= CURVE_VALUES_MIN)
        .map(|latency| match latency.of {
            "hold granted" => ("granted", latency),
            "hold refused" => ("refused", latency),
            _ => ("confirm", latency),
        })
        .collect();
    if drawn.len() > 1 { drawn } else { vec![("all", all)] }
}

/// Lines across the plot with their labels on the left; returns where they are.
fn horizontal_grid(canvas: &mut Canvas, plot: Area, highest: f64, unit: &str) -> Vec<f64> {
    let ticks = ticks(highest);
    let top = ticks[ticks.len() - 1];
    for tick in &ticks {
        let y = plot.bottom() - plot.height * tick / top;
        let class = if *tick == 0.0 { "axis" } else { "grid" };
        canvas.line(at(plot.left, y), at(plot.right(), y), class);
        canvas.text(at(plot.left - 10.0, y + 4.0), Anchor::End, "label", &tick_label(*tick, ticks[1]));
    }
    canvas.text(at(plot.left - 10.0, plot.top - 14.0), Anchor::End, "label", unit);
    ticks
}

/// Coloured squares and words above the plot, the last one ending at its right edge.
fn legend(canvas: &mut Canvas, plot: Area, entries: Vec<Entry>) {
    let y = plot.top - 14.0;
    let mut right = plot.right();
    for entry in entries.into_iter().rev() {
        let words_left = right - entry.words.chars().count() as f64 * LETTER_WIDTH;
        canvas.text(at(words_left, y), Anchor::Start, "label", &entry.words);
        let square = Area { left: words_left - 17.0, top: y - 10.0, width: 11.0, height: 11.0 };
        canvas.rectangle(square, 2.0, entry.class);
        right = words_left - 35.0;
    }
}
