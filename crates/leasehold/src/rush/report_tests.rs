//! Reports from made-up runs: the figures are right, and the drawing stays whole whatever it shows.

use leasehold_api::Code;

use super::*;

fn verdict(complaints: &[&str]) -> Verdict {
    Verdict {
        passed: complaints.is_empty(),
        oversold: false,
        server_errors: 0,
        sold: "exactly 3 of 3 seats sold".to_owned(),
        complaints: complaints.iter().map(|words| (*words).to_owned()).collect(),
    }
}

fn report(tally: &Tally, elapsed: Duration, verdict: Verdict) -> Report {
    let setup = Setup {
        target: "http://127.0.0.1:7070".to_owned(),
        event: "rush-<3 & \"more\">".to_owned(),
        shape: "hot".to_owned(),
        seats: 3,
        pool: None,
        users: 200,
        duration_ms: 10_000,
        rate: None,
        confirm: true,
    };
    Report::new(Material {
        setup,
        interrupted: false,
        elapsed,
        tally,
        holds_not_sent: None,
        after: None,
        verdict,
    })
}

/// Ten seconds of a hot sale: a few wins, many refusals with a long tail, some over a limit, one failure.
fn hot_sale() -> Tally {
    let mut tally = Tally::new();
    let mut record = |kind, outcome, at_ms, latency_us| {
        tally.sent += 1;
        tally.record(kind, outcome, Duration::from_millis(at_ms), Duration::from_micros(latency_us));
    };
    let answered = |status, code| Outcome::Answered { status, code };
    for win in 0..3 {
        record(Kind::Hold, answered(201, None), 5 + win, 2_600 + 300 * win);
        record(Kind::Confirm, answered(201, None), 8 + win, 2_100 + 500 * win);
    }
    for index in 0..40_000_u64 {
        let spread = index * 7_919 % 10_000;
        let tail = if spread > 9_980 {
            9_000
        } else if spread > 9_800 {
            2_500
        } else {
            0
        };
        let at_ms = index / 4 + spread / 7;
        record(Kind::Hold, answered(409, Some(Code::SeatTaken)), at_ms.min(9_999), 900 + spread / 4 + tail);
    }
    for index in 0..900 {
        record(Kind::Hold, answered(429, Some(Code::QuotaExceeded)), 6_000 + index, 700);
    }
    record(Kind::Hold, Outcome::Unknown, 7_500, 10_000_000);
    tally
}

#[test]
fn the_published_run_is_its_own_measure() {
    let mut tally = Tally::new();
    for _ in 0..5_718 {
        tally.sent += 1;
        let taken = Outcome::Answered { status: 409, code: Some(Code::SeatTaken) };
        tally.record(Kind::Hold, taken, Duration::ZERO, Duration::from_millis(144));
    }
    let report = report(&tally, Duration::from_secs(10), verdict(&[]));
    assert!((report.published.requests_per_second_ratio - 1.0).abs() < 1e-9);
    assert!((report.published.mean_ratio.unwrap() - 1.0).abs() < 0.001);
    assert_eq!(report.exit_code(), 0);
    assert!(report.to_text().contains("5,718 sent = 5,718 answered + 0 without an answer"));
}

#[test]
fn a_failed_verdict_fails_the_command() {
    let report = report(&hot_sale(), Duration::from_secs(10), verdict(&["sold to two buyers: A-1"]));
    assert_eq!(report.exit_code(), 1);
    assert!(report.to_text().contains("  - sold to two buyers: A-1"));
    assert!(report.to_svg().contains("sold to two buyers: A-1"));
}

#[test]
fn outcomes_in_the_report_add_up() {
    let report = report(&hot_sale(), Duration::from_secs(10), verdict(&[]));
    assert_eq!(report.outcomes.iter().map(|outcome| outcome.count).sum::<u64>(), report.requests);
    assert_eq!(report.outcomes[0].code, Some("seat-taken"));
    assert_eq!(report.latency[0].count, report.requests - 1);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["requests"], 40_907);
    assert_eq!(json["verdict"]["passed"], true);
}

#[test]
fn the_drawing_is_whole_and_needs_nothing_from_outside() {
    let report = report(&hot_sale(), Duration::from_millis(10_004), verdict(&[]));
    let svg = report.to_svg();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("rush-&lt;3 &amp; &quot;more&quot;&gt;"));
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "a figure is not a number");
    let outside = ["href", "url(", "@import", "<script", "<image"];
    assert!(outside.iter().all(|mark| !svg.contains(mark)));
    assert!(report.to_html().contains(&svg));

    let directory = tempfile::tempdir().unwrap();
    for name in ["report.svg", "report.html"] {
        report.write(&directory.path().join(name)).unwrap();
    }
    assert!(report.write(&directory.path().join("report.png")).is_err());
}

#[test]
fn a_run_without_a_single_answer_can_be_drawn() {
    let report = report(&Tally::new(), Duration::ZERO, verdict(&["nothing was tested"]));
    let svg = report.to_svg();
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    assert!(report.to_text().contains("FAILED"));
}
