//! A correct run passes, and each planted fault is found.

use leasehold_api::{ItemView, PoolCount, SeatCounts};

use super::super::tally::Kind;
use super::super::told::surely_until;
use super::*;

/// A run for three seats and two units, in which all went well.
struct Run {
    offer: Offer,
    before: Snapshot,
    after: Snapshot,
    told: Told,
    tally: Tally,
}

fn snapshot(letters: &str, units_sold: u32) -> Snapshot {
    let seats = ["A-1", "A-2", "A-3"].map(str::to_owned);
    let count = |wanted| letters.chars().filter(|letter| *letter == wanted).count() as u32;
    let counts =
        SeatCounts { total: 3, free: count('f'), held: count('h'), sold: count('s'), blocked: count('b') };
    let pool =
        PoolCount { id: "floor".to_owned(), capacity: 2, free: 2 - units_sold, held: 0, sold: units_sold };
    Snapshot {
        seats: counts,
        availability: counts,
        letters: seats.into_iter().zip(letters.chars()).collect(),
        pools: vec![pool],
    }
}

fn seat(id: &str, fence: u64) -> ItemView {
    ItemView { seat: Some(id.to_owned()), fence: Some(fence), ..ItemView::default() }
}

fn unit() -> ItemView {
    ItemView { pool: Some("floor".to_owned()), quantity: Some(1), ..ItemView::default() }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A hold that the user was told of 10 ms after the start, and that surely lives for a second.
fn granted(hold: &str, item: ItemView, ending: Ending) -> Grant {
    Grant { hold_id: hold.to_owned(), items: vec![item], told: ms(10), lives_until: ms(1_000), ending }
}

fn sold(hold: &str, item: ItemView) -> Grant {
    granted(hold, item.clone(), Ending::Sold(vec![item]))
}

const REFUSED_LATE: Ending = Ending::Refused { told: Duration::from_secs(2) };

impl Run {
    fn correct() -> Self {
        let seats = ["A-1", "A-2", "A-3"].map(str::to_owned).to_vec();
        let offer = Offer { event: "x".to_owned(), seats, pool: Some("floor".to_owned()) };
        let grants = vec![
            sold("h1", seat("A-1", 1)),
            sold("h2", seat("A-2", 1)),
            sold("h3", seat("A-3", 4)),
            sold("h4", unit()),
            sold("h5", unit()),
        ];
        let told = Told { grants, every_seat_decided: true, ..Told::default() };
        let mut run =
            Self { offer, before: snapshot("fff", 0), after: snapshot("sss", 2), told, tally: Tally::new() };
        for _ in 0..5 {
            run.answer(201, None);
            run.answer(409, Some(Code::SeatTaken));
        }
        run
    }

    fn answer(&mut self, status: u16, code: Option<Code>) {
        self.tally.sent += 1;
        let outcome = Outcome::Answered { status, code };
        self.tally.record(Kind::Hold, outcome, Duration::ZERO, Duration::from_millis(1));
    }

    fn verdict(&self) -> Verdict {
        Verdict::reach(&self.evidence())
    }

    fn evidence(&self) -> Evidence<'_> {
        Evidence {
            offer: &self.offer,
            shape: Shape::Hot,
            confirming: Confirming::Always,
            before: &self.before,
            after: Ok(&self.after),
            told: &self.told,
            tally: &self.tally,
        }
    }

    #[track_caller]
    fn fails_with(&self, words: &str) -> Verdict {
        let verdict = self.verdict();
        assert!(!verdict.passed);
        assert!(verdict.complaints.iter().any(|complaint| complaint.contains(words)), "{verdict:?}");
        verdict
    }
}

#[test]
fn a_correct_run_passes() {
    let verdict = Run::correct().verdict();
    assert_eq!(verdict.complaints, Vec::<String>::new());
    assert!(verdict.passed && !verdict.oversold);
    assert_eq!(verdict.sold, "exactly 3 of 3 seats sold, 2 of 2 units sold");
}

#[test]
fn a_double_sale_is_found() {
    let mut run = Run::correct();
    run.told.grants.push(sold("h9", seat("A-2", 2)));
    let verdict = run.fails_with("sold to two buyers: A-2");
    assert!(verdict.oversold);
    assert!(verdict.sold.starts_with("4 sales of 3 seats"), "{}", verdict.sold);
}

#[test]
fn a_double_hold_is_found() {
    let mut run = Run::correct();
    run.told.grants.push(granted("h9", seat("A-3", 4), REFUSED_LATE));
    run.fails_with("held by two buyers under one fence: A-3");
}

#[test]
fn two_holds_at_once_are_found_whatever_their_fences_are() {
    for ending in [Ending::Kept, Ending::Unresolved] {
        let mut run = Run::correct();
        let again = granted("h9", seat("A-3", 5), ending);
        run.told.grants.insert(0, Grant { told: ms(999), lives_until: ms(2_000), ..again });
        run.fails_with("held by two buyers at once: A-3");
    }
}

#[test]
fn a_hold_after_the_end_of_another_is_fine() {
    let mut run = Run::correct();
    for (hold, [told, lives_until]) in
        [("h7", [1_000, 2_000]), ("h8", [2_000, 2_100]), ("h9", [2_200, 2_150])]
    {
        let again = granted(hold, seat("A-3", told), Ending::Kept);
        run.told.grants.push(Grant { told: ms(told), lives_until: ms(lives_until), ..again });
    }
    run.told.every_seat_decided = false;
    let verdict = run.verdict();
    assert!(verdict.passed, "{verdict:?}");
}

#[test]
fn a_sale_that_is_refused_in_time_is_found() {
    let mut run = Run::correct();
    run.after = snapshot("sfs", 2);
    run.told.grants[1].ending = Ending::Refused { told: ms(999) };
    run.fails_with("held, and refused to be sold in time: A-2");
    run.told.grants[1].ending = Ending::Refused { told: ms(1_000) };
    let verdict = run.verdict();
    assert!(verdict.passed, "{verdict:?}");
    run.after.pools[0] = PoolCount { id: "floor".to_owned(), capacity: 2, free: 1, held: 0, sold: 1 };
    run.told.grants[4].ending = Ending::Refused { told: ms(999) };
    run.fails_with("held, and refused to be sold in time: floor");
}

#[test]
fn a_hold_is_not_believed_to_live_longer_than_the_server_may_think() {
    assert_eq!(surely_until(ms(300), 120_000), ms(300) + ms(120_000 - 1_200 - 20));
    assert_eq!(surely_until(ms(300), 20), ms(300));
}

#[test]
fn a_lost_sale_is_found() {
    let mut run = Run::correct();
    run.after = snapshot("sfs", 2);
    run.fails_with("not sold on the server: A-2");
}

#[test]
fn a_sale_to_nobody_is_found_unless_it_is_in_doubt() {
    let mut run = Run::correct();
    run.told.grants[1].ending = REFUSED_LATE;
    run.fails_with("to none of the users: A-2");
    run.told.grants[1].ending = Ending::Unresolved;
    let verdict = run.fails_with("1 requests have no known outcome");
    assert_eq!(verdict.complaints.len(), 1, "{verdict:?}");
}

#[test]
fn what_was_sold_before_the_run_is_not_held_against_it() {
    let mut run = Run::correct();
    run.before = snapshot("fsf", 0);
    run.offer.seats.remove(1);
    run.told.grants.remove(1);
    let verdict = run.verdict();
    assert!(verdict.passed, "{verdict:?}");
    assert!(verdict.sold.starts_with("exactly 2 of 2 seats"));
}

#[test]
fn an_oversold_pool_is_found() {
    let mut run = Run::correct();
    run.told.grants.push(sold("h6", unit()));
    run.after.pools[0] = PoolCount { id: "floor".to_owned(), capacity: 2, free: 0, held: 0, sold: 3 };
    assert!(run.fails_with("3 units sold and 0 held of 2").oversold);
}

#[test]
fn a_pool_that_counts_wrong_is_found() {
    let mut run = Run::correct();
    run.after.pools[0].sold = 1;
    run.fails_with("1 units of `floor` sold on the server, 2 acknowledged");
}

#[test]
fn a_server_that_contradicts_itself_is_found() {
    let mut run = Run::correct();
    run.after.availability.sold = 2;
    run.fails_with("contradicts itself");
    let mut run = Run::correct();
    run.after.seats.free = 1;
    run.fails_with("are 4, and there are 3");
}

#[test]
fn a_seat_refused_to_everybody_is_found() {
    let mut run = Run::correct();
    run.told.grants.remove(1);
    run.after = snapshot("sfs", 2);
    run.fails_with("refused to everybody, and not sold: A-2");
}

#[test]
fn server_errors_are_found_and_honest_overload_is_not_one() {
    let mut run = Run::correct();
    run.answer(503, Some(Code::Overloaded));
    run.answer(429, Some(Code::QuotaExceeded));
    assert!(run.verdict().passed);
    run.answer(500, None);
    assert_eq!(run.fails_with("1 answers were server errors").server_errors, 1);
}

#[test]
fn a_refusal_without_reason_is_found() {
    let mut run = Run::correct();
    run.answer(404, Some(Code::NotFound));
    run.fails_with("1 answers make no sense");
}

#[test]
fn a_run_in_which_nothing_was_decided_does_not_pass() {
    let mut run = Run::correct();
    run.tally = Tally::new();
    run.answer(429, Some(Code::QuotaExceeded));
    run.fails_with("nothing was tested");
}

#[test]
fn a_long_list_of_seats_is_cut() {
    let seats: BTreeSet<&str> = ["a", "b", "c", "d", "e", "f", "g"].into();
    assert_eq!(named(&seats), "a, b, c, d, e and 2 more");
}

#[test]
fn an_event_that_cannot_be_read_fails_and_a_double_sale_is_found_all_the_same() {
    let mut run = Run::correct();
    run.told.grants.push(sold("h9", seat("A-2", 2)));
    let gone = anyhow::anyhow!("cannot connect");
    let verdict = Verdict::reach(&Evidence { after: Err(&gone), ..run.evidence() });
    assert!(!verdict.passed && verdict.oversold);
    assert!(
        verdict.complaints.iter().any(|complaint| complaint.contains("could not be read")),
        "{verdict:?}"
    );
}
