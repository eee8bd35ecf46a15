//! The drawn report: headline, figures, charts and the table, one below the other.

use super::Report;
use super::canvas::{Anchor, Area, Canvas, at, clipped, escape};
use super::charts;
use super::scale::{milliseconds, thousands, times};
use super::table::{share_in_words, sum_in_words};

const STYLE: &str = include_str!("style.css");

/// The picture's width, and the margin on all sides of it.
const WIDTH: f64 = 960.0;
const MARGIN: f64 = 40.0;
const INNER: f64 = WIDTH - 2.0 * MARGIN;
/// Room left of a plot for the labels of its axis.
const AXIS_ROOM: f64 = 64.0;
/// Letters that fit on a line of the usual size.
const LINE_LETTERS: usize = 115;
/// Letters that fit into the verdict's band: of its headline, and of a complaint.
const HEADLINE_LETTERS: usize = 88;
const COMPLAINT_LETTERS: usize = 105;
/// Complaints and outcomes that are shown; the JSON report has all of them.
const COMPLAINTS_MAX: usize = 6;
const OUTCOMES_MAX: usize = 14;

/// What was run, in one line.
pub(super) fn setup_in_words(report: &Report) -> String {
    let setup = &report.setup;
    let pool = setup.pool.map(|units| format!(" and {} units", thousands(units.into()))).unwrap_or_default();
    let pace = match setup.rate {
        Some(rate) => format!("open loop at {} holds/s", thousands(rate.round() as u64)),
        None => "closed loop".to_owned(),
    };
    let confirm = if setup.confirm { "" } else { ", nothing confirmed" };
    let interrupted = if report.interrupted { ", ended early" } else { "" };
    format!(
        "{} users for {} seats{pool}, {}, {pace}, {:.1} s{confirm}{interrupted}",
        thousands(setup.users.into()),
        thousands(setup.seats),
        setup.shape,
        report.elapsed_ms / 1000.0
    )
}

/// The report as one picture without anything from outside.
pub(super) fn svg(report: &Report) -> String {
    let mut canvas = Canvas::default();
    let y = header(&mut canvas, report);
    let y = verdict(&mut canvas, y, report);
    let y = tiles(&mut canvas, y, report);
    let y = chart(&mut canvas, y, 230.0, "Latency by percentile", |canvas, plot| {
        charts::latency(canvas, plot, report);
    });
    let y = chart(&mut canvas, y, 190.0, "Requests per second", |canvas, plot| {
        charts::throughput(canvas, plot, report);
    });
    let height = outcomes(&mut canvas, y, report) + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n\
         <style>\n{STYLE}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" class=\"paper\"/>\n{}</svg>\n",
        escape(&report.verdict.headline()),
        canvas.into_elements()
    )
}

/// The picture in a page of its own.
pub(super) fn html(report: &Report) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Leasehold rush: {}</title>\n\
         <style>\nbody {{ margin: 0; background: #ffffff; }}\n\
         svg {{ display: block; margin: 0 auto; max-width: 100%; height: auto; }}\n\
         @media (prefers-color-scheme: dark) {{ body {{ background: #0d1117; }} }}\n</style>\n</head>\n\
         <body>\n{}</body>\n</html>\n",
        escape(&report.verdict.headline()),
        svg(report)
    )
}

fn header(canvas: &mut Canvas, report: &Report) -> f64 {
    canvas.text(at(MARGIN, 62.0), Anchor::Start, "title", "Leasehold rush");
    let setup = clipped(&setup_in_words(report), LINE_LETTERS);
    canvas.text(at(MARGIN, 90.0), Anchor::Start, "words", &setup);
    let place = clipped(&format!("event {}", report.setup.event), 60);
    canvas.text(at(WIDTH - MARGIN, 62.0), Anchor::End, "label", &place);
    114.0
}

fn verdict(canvas: &mut Canvas, top: f64, report: &Report) -> f64 {
    let complaints = &report.verdict.complaints;
    let mut lines = vec![report.verdict.subline()];
    lines.extend(complaints.iter().take(COMPLAINTS_MAX).map(|words| clipped(words, COMPLAINT_LETTERS)));
    if complaints.len() > COMPLAINTS_MAX {
        lines.push(format!("and {} more", complaints.len() - COMPLAINTS_MAX));
    }
    let height = 52.0 + 24.0 * lines.len() as f64;
    let (band, mark) = if report.verdict.passed { ("good", "granted") } else { ("bad", "failed") };
    canvas.rectangle(Area { left: MARGIN, top, width: INNER, height }, 6.0, band);
    canvas.rectangle(Area { left: MARGIN, top, width: 6.0, height }, 3.0, mark);
    let headline = clipped(&report.verdict.headline(), HEADLINE_LETTERS);
    canvas.text(at(MARGIN + 24.0, top + 32.0), Anchor::Start, "headline", &headline);
    for (index, line) in lines.iter().enumerate() {
        canvas.text(at(MARGIN + 24.0, top + 58.0 + 24.0 * index as f64), Anchor::Start, "words", line);
    }
    top + height + 20.0
}

fn tiles(canvas: &mut Canvas, top: f64, report: &Report) -> f64 {
    const GAP: f64 = 16.0;
    let width = (INNER - 3.0 * GAP) / 4.0;
    let published = &report.published;
    let all = report.latency.first().filter(|all| all.count > 0);
    let figure = |ms: Option<f64>| ms.map_or("none".to_owned(), |ms| format!("{} ms", milliseconds(ms)));
    let better = published.mean_ratio.map(|ratio| format!(" ({})", times(ratio))).unwrap_or_default();
    let tiles = [
        (
            "Requests",
            thousands(report.requests),
            format!("published: {} in 10 s", thousands(published.requests)),
        ),
        (
            "Requests per second",
            thousands(report.requests_per_second.round() as u64),
            format!(
                "published: {} ({})",
                thousands((published.requests as f64 / 10.0).round() as u64),
                times(published.requests_per_second_ratio)
            ),
        ),
        (
            "Mean latency",
            figure(all.map(|all| all.mean_ms)),
            format!("published: {} ms{better}", milliseconds(published.mean_ms)),
        ),
        (
            "99 of 100 answers within",
            figure(all.map(|all| all.p99_ms)),
            format!("slowest: {}", figure(all.map(|all| all.max_ms))),
        ),
    ];
    for (index, (label, value, note)) in tiles.into_iter().enumerate() {
        let left = MARGIN + index as f64 * (width + GAP);
        canvas.rectangle(Area { left, top, width, height: 100.0 }, 6.0, "tile");
        canvas.text(at(left + 16.0, top + 28.0), Anchor::Start, "label", label);
        canvas.text(at(left + 16.0, top + 60.0), Anchor::Start, "figure", &value);
        canvas.text(at(left + 16.0, top + 84.0), Anchor::Start, "label", &note);
    }
    top + 100.0 + 44.0
}

/// A chart's title, and below it room for its legend, its plot and the labels of its axis.
fn chart(
    canvas: &mut Canvas,
    top: f64,
    height: f64,
    title: &str,
    draw: impl FnOnce(&mut Canvas, Area),
) -> f64 {
    canvas.text(at(MARGIN, top), Anchor::Start, "section", title);
    let plot = Area { left: MARGIN + AXIS_ROOM, top: top + 44.0, width: INNER - AXIS_ROOM - 24.0, height };
    draw(canvas, plot);
    plot.bottom() + 72.0
}

fn outcomes(canvas: &mut Canvas, top: f64, report: &Report) -> f64 {
    const COLUMNS: [(f64, Anchor); 5] = [
        (MARGIN, Anchor::Start),
        (MARGIN + 120.0, Anchor::Start),
        (MARGIN + 220.0, Anchor::Start),
        (MARGIN + 600.0, Anchor::End),
        (MARGIN + 720.0, Anchor::End),
    ];
    const ROW: f64 = 28.0;
    let row = |canvas: &mut Canvas, y: f64, class: &str, cells: [&str; 5]| {
        for ((x, anchor), cell) in COLUMNS.into_iter().zip(cells) {
            canvas.text(at(x, y), anchor, class, cell);
        }
    };
    canvas.text(at(MARGIN, top), Anchor::Start, "section", "Requests by answer");
    let mut y = top + 34.0;
    row(canvas, y, "label", ["request", "status", "code", "count", "share"]);
    for outcome in report.outcomes.iter().take(OUTCOMES_MAX) {
        canvas.line(at(MARGIN, y + 9.0), at(WIDTH - MARGIN, y + 9.0), "grid");
        y += ROW;
        let share = 100.0 * outcome.count as f64 / report.requests.max(1) as f64;
        let status = outcome.status.map_or("none".to_owned(), |status| status.to_string());
        let (count, percent) = (thousands(outcome.count), share_in_words(share));
        let cells = [outcome.kind, &status, outcome.code.unwrap_or(""), &count, &percent];
        row(canvas, y, "words", cells);
        let class = match outcome.status {
            Some(200..300) => "granted",
            Some(429) => "limited",
            Some(0..500) => "refused",
            Some(_) | None => "failed",
        };
        let width = (share / 100.0 * 140.0).max(2.0);
        canvas.rectangle(Area { left: MARGIN + 740.0, top: y - 10.0, width, height: 11.0 }, 2.0, class);
    }
    if report.outcomes.len() > OUTCOMES_MAX {
        y += ROW;
        let more = format!("and {} more kinds of answer", report.outcomes.len() - OUTCOMES_MAX);
        canvas.text(at(MARGIN, y), Anchor::Start, "words", &more);
    }
    canvas.line(at(MARGIN, y + 9.0), at(WIDTH - MARGIN, y + 9.0), "axis");
    canvas.text(at(MARGIN, y + 34.0), Anchor::Start, "words", &clipped(&sum_in_words(report), LINE_LETTERS));
    let note =
        "Published run: 200 users, 10 s, 3 seats: 5,718 requests, 144 ms on average, on another machine.";
    canvas.text(at(MARGIN, y + 58.0), Anchor::Start, "label", note);
    y + 58.0
}
