//! Counting loses nothing and counts nothing twice.

use super::*;

const TAKEN: Outcome = Outcome::Answered { status: 409, code: Some(Code::SeatTaken) };
const CREATED: Outcome = Outcome::Answered { status: 201, code: None };

fn recorded(outcomes: &[(Kind, Outcome)]) -> Tally {
    let mut tally = Tally::new();
    for (at, (kind, outcome)) in outcomes.iter().enumerate() {
        tally.sent += 1;
        tally.record(*kind, *outcome, Duration::from_millis(700 * at as u64), Duration::from_micros(300));
    }
    tally
}

#[test]
fn outcomes_add_up_to_what_was_sent_also_after_a_merge() {
    let mut all = Tally::new();
    all.merge(&recorded(&[(Kind::Hold, CREATED), (Kind::Confirm, CREATED), (Kind::Hold, TAKEN)]));
    all.merge(&recorded(&[
        (Kind::Hold, TAKEN),
        (Kind::Hold, Outcome::Unknown),
        (Kind::Hold, Outcome::Unreachable),
    ]));
    all.assert_adds_up();
    assert_eq!(all.sent, 6);
    assert_eq!(all.count_where(|kind, outcome| kind == Kind::Hold && outcome == TAKEN), 2);
    assert_eq!(
        all.seconds,
        [
            Second { granted: 2, refused: 1, limited: 0, failed: 1 },
            Second { granted: 0, refused: 1, limited: 0, failed: 1 }
        ]
    );
}

#[test]
#[should_panic(expected = "add up to the requests sent")]
fn a_request_without_an_outcome_is_noticed() {
    let mut tally = recorded(&[(Kind::Hold, TAKEN)]);
    tally.sent += 1;
    tally.assert_adds_up();
}

#[test]
fn only_answers_have_a_latency() {
    let tally = recorded(&[(Kind::Hold, CREATED), (Kind::Hold, TAKEN), (Kind::Hold, Outcome::Unknown)]);
    assert_eq!(tally.latencies_us(Series::HoldGranted).len(), 1);
    assert_eq!(tally.latencies_us(Series::HoldRefused).len(), 1);
    assert_eq!(tally.latencies_us(Series::Confirm).len(), 0);
}

#[test]
fn a_503_that_says_why_is_no_server_error() {
    let answered = |status, code| Outcome::Answered { status, code };
    assert!(answered(500, None).is_server_error());
    assert!(answered(503, None).is_server_error());
    assert!(answered(502, Some(Code::Overloaded)).is_server_error());
    assert!(!answered(503, Some(Code::Overloaded)).is_server_error());
    assert!(!answered(503, Some(Code::OutcomeUnknown)).is_server_error());
    assert!(!TAKEN.is_server_error());
}

#[test]
fn the_code_is_read_from_a_problem_document() {
    let body = br#"{"type":"urn:x","title":"t","status":409,"code":"seat-taken","seats":["A-1"]}"#;
    assert_eq!(code_of(body), Some(Code::SeatTaken));
    assert_eq!(code_of(br#"{"code":"new-code"}"#), None);
    assert_eq!(code_of(b"<html>"), None);
}

#[test]
fn a_slow_answer_is_recorded_as_slow_as_it_was() {
    let mut tally = Tally::new();
    tally.record(Kind::Hold, TAKEN, Duration::ZERO, Duration::from_micros(250));
    tally.record(Kind::Hold, TAKEN, Duration::ZERO, Duration::from_secs(9));
    let mut merged = Tally::new();
    merged.merge(&tally);
    let slowest = merged.latencies_us(Series::HoldRefused).max();
    assert!((9_000_000..9_010_000).contains(&slowest), "{slowest}");
}
