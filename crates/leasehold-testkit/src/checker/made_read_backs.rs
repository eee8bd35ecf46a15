//! The rules about the final state: for each a read-back that breaks it, and one that keeps it.

use std::time::Duration;

use serde_json::{Value, json};

use super::made::{Made, booking_view, hold_view, stamp};
use super::{Rule, check_within};
use crate::history::History;

fn breaks(made: Made, rule: Rule) {
    let checked = made.judge();
    assert!(checked.broke(rule), "{rule:?} was not reported: {:?}", checked.violations);
}

fn keeps(made: Made) {
    made.judge().assert_clean();
}

/// A hold of seat A from 0 to 60,000.
fn held() -> Made {
    Made::new().hold((0, 10), "h1", "A", 1, 60_000)
}

fn hold_in(state: &str) -> Value {
    hold_view("h1", state, 0, 60_000, json!([{"seat": "A", "fence": 1}]))
}

fn booking_in(state: &str) -> Value {
    booking_view("b1", "h1", state, 20, json!([{"seat": "A", "fence": 1}]))
}

#[test]
fn a_lost_hold_is_caught() {
    breaks(held().finally().reads_hold(100, "h1", 404, &json!({})), Rule::NothingLost);
}

#[test]
fn a_hold_that_is_there_is_fine() {
    keeps(held().finally().reads_hold(100, "h1", 200, &hold_in("held")));
}

#[test]
fn a_change_of_a_hold_that_was_acknowledged_and_is_not_there_is_caught() {
    let changed = |view: &Value| {
        let secret = [("hold-secret", "secret-h1")];
        held().answered((20, 30), "PATCH /v1/holds/h1", &secret, 200, view).finally()
    };
    let newer = |change: &dyn Fn(&mut Value)| {
        let mut view = hold_in("held");
        view["version"] = json!(2);
        change(&mut view);
        view
    };
    let extended = newer(&|view| view["expires_at"] = json!(stamp(90_000)));
    let amended = newer(&|view| view["items"] = json!([]));
    let paying = newer(&|view| {
        view["state"] = json!("confirming");
        view["payment"] = json!({"payment_ref": "pay-1", "deadline": stamp(80_000)});
    });
    let unchanged = newer(&|_| {});
    for change in [extended, amended, paying] {
        keeps(changed(&change).reads_hold(100, "h1", 200, &change));
        breaks(changed(&change).reads_hold(100, "h1", 200, &hold_in("held")), Rule::NothingLost);
        breaks(changed(&change).reads_hold(100, "h1", 200, &unchanged), Rule::NothingLost);
    }
}

#[test]
fn an_event_that_is_gone_or_was_never_read_back_is_caught() {
    let created = || {
        let created = Made::new().answered((0, 10), "POST /v1/events", &[], 201, &json!({}));
        created.with_body(&json!({"id": "e", "seats": ["A"]})).finally()
    };
    let line = "GET /v1/events/e";
    keeps(created().reads_event(100, 10, 0, 0));
    breaks(created(), Rule::CheckComplete);
    breaks(created().answered((100, 101), line, &[], 404, &json!({})), Rule::NothingLost);
}

#[test]
fn a_hold_that_was_never_read_back_is_an_incomplete_check() {
    breaks(held().finally(), Rule::CheckComplete);
}

#[test]
fn a_hold_held_after_its_acknowledged_release_is_caught() {
    let released = held().released((20, 30), "h1", "secret-h1").finally();
    breaks(released.reads_hold(100, "h1", 200, &hold_in("held")), Rule::StatesExplained);
}

#[test]
fn a_hold_released_or_not_by_an_unanswered_release_is_fine() {
    for state in ["held", "released"] {
        let asked = held().unanswered(20, "DELETE /v1/holds/h1", "secret-h1").finally();
        keeps(asked.reads_hold(100, "h1", 200, &hold_in(state)));
    }
}

#[test]
fn a_hold_released_by_a_wrong_secret_is_caught() {
    let asked = held().unanswered(20, "DELETE /v1/holds/h1", "wrong").finally();
    breaks(asked.reads_hold(100, "h1", 200, &hold_in("released")), Rule::StatesExplained);
}

#[test]
fn a_hold_that_expired_too_early_is_caught_and_in_time_is_fine() {
    breaks(held().finally().reads_hold(50_000, "h1", 200, &hold_in("expired")), Rule::StatesExplained);
    keeps(held().finally().reads_hold(60_000, "h1", 200, &hold_in("expired")));
}

#[test]
fn a_hold_honoured_after_its_end_is_caught() {
    breaks(held().finally().reads_hold(61_001, "h1", 200, &hold_in("held")), Rule::StatesExplained);
}

#[test]
fn a_confirmed_or_revoked_hold_needs_somebody_who_asked() {
    for state in ["confirmed", "revoked", "melted"] {
        breaks(held().finally().reads_hold(100, "h1", 200, &hold_in(state)), Rule::StatesExplained);
    }
    let confirm = held().unanswered(20, "POST /v1/holds/h1/confirm", "secret-h1").finally();
    keeps(confirm.reads_hold(100, "h1", 200, &hold_in("confirmed")));
    let revoke = held().unanswered(20, "POST /v1/holds/h1/revoke", "").finally();
    keeps(revoke.reads_hold(100, "h1", 200, &hold_in("revoked")));
    let close =
        held().unanswered(20, "PATCH /v1/events/e", "").with_body(&json!({"state": "closed"})).finally();
    keeps(close.reads_hold(100, "h1", 200, &hold_in("revoked")));
}

/// A hold sold as b1, read back as confirmed.
fn sold() -> Made {
    let sold = held().sold((20, 30), "h1", "b1", "A").finally();
    sold.reads_hold(100, "h1", 200, &hold_in("confirmed"))
}

#[test]
fn a_lost_booking_is_caught() {
    breaks(sold().reads_booking(110, "b1", 404, &json!({})), Rule::NothingLost);
    let mut other = booking_in("booked");
    other["order_ref"] = json!("order-7");
    breaks(sold().reads_booking(110, "b1", 200, &other), Rule::NothingLost);
}

#[test]
fn a_booking_that_is_there_is_fine() {
    keeps(sold().reads_booking(110, "b1", 200, &booking_in("booked")));
}

#[test]
fn a_booking_cancelled_by_nobody_is_caught() {
    breaks(sold().reads_booking(110, "b1", 200, &booking_in("cancelled")), Rule::StatesExplained);
}

#[test]
fn a_cancel_that_was_acknowledged_and_undone_is_caught() {
    let cancelled = held().sold((20, 30), "h1", "b1", "A").cancelled((40, 50), "b1").finally();
    let cancelled = cancelled.reads_hold(100, "h1", 200, &hold_in("confirmed"));
    breaks(cancelled.reads_booking(110, "b1", 200, &booking_in("booked")), Rule::StatesExplained);
}

#[test]
fn numbers_that_do_not_add_up_are_caught() {
    let read = sold().reads_booking(110, "b1", 200, &booking_in("booked"));
    breaks(read.reads_event(120, 8, 1, 0), Rule::CountersAdd);
}

#[test]
fn numbers_that_add_up_are_fine() {
    keeps(sold().reads_booking(110, "b1", 200, &booking_in("booked")).reads_event(120, 9, 1, 0));
}

#[test]
fn more_sold_than_was_acknowledged_is_caught() {
    let read = sold().reads_booking(110, "b1", 200, &booking_in("booked"));
    breaks(read.reads_event(120, 8, 2, 0), Rule::CountersAdd);
}

#[test]
fn fewer_sold_than_were_acknowledged_is_caught() {
    let read = sold().reads_booking(110, "b1", 200, &booking_in("booked"));
    breaks(read.reads_event(120, 10, 0, 0), Rule::CountersAdd);
}

#[test]
fn an_unanswered_confirm_may_count_as_sold_or_not() {
    for (free, sold, state) in [(10, 0, "held"), (9, 1, "confirmed")] {
        let asked = held().unanswered(20, "POST /v1/holds/h1/confirm", "secret-h1").finally();
        keeps(asked.reads_hold(100, "h1", 200, &hold_in(state)).reads_event(120, free, sold, 0));
    }
}

#[test]
fn a_pool_with_more_held_than_it_has_is_caught() {
    let held = Made::new().pool_hold((0, 10), "h1", 3, 60_000).pool_hold((20, 30), "h2", 3, 60_000).finally();
    breaks(held.reads_event(120, 10, 0, 0), Rule::CountersAdd);
}

#[test]
fn more_held_than_was_asked_for_is_caught() {
    let line = "POST /v1/events/e/holds";
    let asked = || {
        let first =
            Made::new().unanswered(0, line, "").with_body(&json!({"items": [{"pool": "p", "quantity": 2}]}));
        first.finally()
    };
    keeps(asked().reads_pool(10, 2));
    breaks(asked().reads_pool(10, 3), Rule::CountersAdd);
}

#[test]
fn less_held_than_surely_lives_is_caught() {
    let pool = || Made::new().pool_hold((0, 10), "h1", 3, 60_000);
    let view = hold_view("h1", "held", 0, 60_000, json!([{"pool": "p", "quantity": 3}]));
    let read = |made: Made| made.finally().reads_hold(99, "h1", 200, &view);
    keeps(read(pool()).reads_pool(100, 3));
    for shown in 0..3 {
        breaks(read(pool()).reads_pool(100, shown), Rule::CountersAdd);
        // Somebody asked to end it, or its time may be over: nobody knows.
        keeps(read(pool().unanswered(20, "DELETE /v1/holds/h1", "secret-h1")).reads_pool(100, shown));
        keeps(read(pool()).reads_pool(59_500, shown));
    }
    breaks(read(pool().unanswered(20, "DELETE /v1/holds/h1", "wrong")).reads_pool(100, 0), Rule::CountersAdd);
    let seat = || held().finally().reads_hold(99, "h1", 200, &hold_in("held"));
    keeps(seat().reads_held(100, 1));
    breaks(seat().reads_held(100, 0), Rule::CountersAdd);
}

#[test]
fn a_change_of_an_event_that_was_acknowledged_and_is_not_there_is_caught() {
    let patch = |made: Made, span, key: &str, body: &Value| {
        made.answered(span, "PATCH /v1/events/e", &[("idempotency-key", key)], 200, &json!({}))
            .with_body(body)
    };
    let capacity = |capacity: u32| json!({"pools": [{"id": "p", "capacity": capacity}]});
    let changed = |made: Made, after: Value| patch(made, (30, 40), "k2", &after);
    // It is read back as open, and with a pool of 5.
    let rule = |extends_max: u32| json!({"policy": {"extends_max": extends_max}});
    for (wrong, right) in [
        (capacity(7), capacity(5)),
        (json!({"state": "closed"}), json!({"state": "open"})),
        (rule(2), rule(1)),
    ] {
        let before = || patch(Made::new(), (0, 10), "k1", &wrong);
        breaks(before().finally().reads_event(100, 10, 0, 0), Rule::NothingLost);
        keeps(changed(before(), right.clone()).finally().reads_event(100, 10, 0, 0));
        breaks(
            changed(patch(Made::new(), (0, 10), "k1", &right), wrong.clone())
                .finally()
                .reads_event(100, 10, 0, 0),
            Rule::NothingLost,
        );
        // At the same time, or without an answer: either may be the last.
        keeps(
            changed(patch(Made::new(), (20, 50), "k1", &right), wrong.clone())
                .finally()
                .reads_event(100, 10, 0, 0),
        );
        let unanswered = Made::new().unanswered(0, "PATCH /v1/events/e", "").with_body(&right);
        keeps(changed(unanswered, wrong.clone()).finally().reads_event(100, 10, 0, 0));
        // The repetition of a request that came first is no new change.
        let repeated = patch(changed(before(), right), (50, 60), "k1", &wrong);
        keeps(repeated.finally().reads_event(100, 10, 0, 0));
    }
}

#[test]
fn an_event_that_was_closed_before_explains_no_end_of_a_hold() {
    let closed = |span| {
        let closed = Made::new().answered(span, "PATCH /v1/events/e", &[], 200, &json!({}));
        closed.with_body(&json!({"state": "closed"})).hold((50, 60), "h1", "A", 1, 60_000).finally()
    };
    breaks(closed((0, 10)).reads_hold(100, "h1", 200, &hold_in("revoked")), Rule::StatesExplained);
    keeps(closed((0, 70)).reads_hold(100, "h1", 200, &hold_in("revoked")));
}

#[test]
fn a_pool_may_have_been_larger_than_it_is() {
    let held = || {
        let first = Made::new().pool_hold((0, 10), "h1", 3, 60_000).pool_hold((20, 30), "h2", 3, 60_000);
        first.unanswered(15, "PATCH /v1/events/e", "")
    };
    let kept = |capacity: u32| {
        let asked = held().with_body(&json!({"pools": [{"id": "p", "capacity": capacity}]})).finally();
        let read = |made: Made, id: &str, created: u64| {
            let view =
                hold_view(id, "held", created, created + 60_000, json!([{"pool": "p", "quantity": 3}]));
            made.reads_hold(100, id, 200, &view)
        };
        // By then they are over.
        read(read(asked, "h1", 0), "h2", 20).reads_event(70_000, 10, 0, 0)
    };
    keeps(kept(6));
    breaks(kept(5), Rule::CountersAdd);
}

#[test]
fn an_unanswered_amendment_may_be_part_of_what_was_sold() {
    let asked = || held().unanswered(20, "PATCH /v1/holds/h1", "secret-h1");
    let sold = |made: Made| {
        let asked = made.unanswered(30, "POST /v1/holds/h1/confirm", "secret-h1").finally();
        asked.reads_hold(100, "h1", 200, &hold_in("confirmed")).reads_event(120, 8, 2, 0)
    };
    keeps(sold(asked().with_body(&json!({"add": [{"seat": "B"}]}))));
    breaks(sold(asked().with_body(&json!({"extend_ms": 5}))), Rule::CountersAdd);
}

#[test]
fn a_block_that_was_acknowledged_is_shown_until_it_is_removed() {
    let blocked = || Made::new().blocked((0, 10), "k1", &["A", "B"]);
    keeps(blocked().finally().reads_blocked(100, 2));
    breaks(blocked().finally().reads_blocked(100, 0), Rule::CountersAdd);
    let removal = "DELETE /v1/events/e/blocks/k1";
    let removed = || blocked().unblocked((20, 30), "k1").finally();
    keeps(removed().reads_blocked(100, 0));
    breaks(removed().reads_blocked(100, 2), Rule::CountersAdd);
    for shown in [0, 2] {
        keeps(blocked().unanswered(20, removal, "").finally().reads_blocked(100, shown));
        let asked = Made::new().unanswered(20, "POST /v1/events/e/blocks", "");
        keeps(asked.with_body(&json!({"seats": ["A", "B"]})).finally().reads_blocked(100, shown));
    }
}

#[test]
fn a_payment_that_must_be_given_back_is_in_the_list() {
    let due = json!({"type": "urn:x", "title": "x", "status": 409, "code": "refund-due"});
    let owed = || {
        let secret = [("hold-secret", "secret-h1")];
        let confirm = held().released((12, 15), "h1", "secret-h1").answered(
            (20, 30),
            "POST /v1/holds/h1/confirm",
            &secret,
            409,
            &due,
        );
        let asked = confirm.with_body(&json!({"payment_ref": "pay-1"})).finally();
        asked.reads_hold(100, "h1", 200, &hold_in("released"))
    };
    let list = |refunds: Value| {
        let page = json!({"refunds": refunds});
        owed().answered((110, 111), "GET /v1/events/e/refunds", &[], 200, &page)
    };
    keeps(list(json!([{"payment_ref": "pay-1", "hold_id": "h1"}])));
    breaks(list(json!([{"payment_ref": "pay-2", "hold_id": "h1"}])), Rule::NothingLost);
    breaks(owed(), Rule::CheckComplete);
}

#[test]
fn letters_that_contradict_the_counts_are_caught() {
    let counts = json!({"total": 2, "free": 2, "held": 0, "sold": 0, "blocked": 0});
    let view = |letters: &str| json!({"event": "e", "version": "1-1", "full": true, "counts": counts, "seats": letters, "pools": []});
    let line = "GET /v1/events/e/availability";
    breaks(Made::new().finally().answered((1, 2), line, &[], 200, &view("fh")), Rule::CountersAdd);
    keeps(Made::new().finally().answered((1, 2), line, &[], 200, &view("ff")));
}

#[test]
fn a_check_that_takes_too_long_is_a_violation() {
    let checked = check_within(&History::new(), Duration::ZERO);
    assert!(checked.broke(Rule::CheckComplete));
}

#[test]
#[should_panic(expected = "too few")]
fn a_history_without_work_means_nothing() {
    check_within(&History::new(), Duration::from_secs(1)).assert_meaningful(1);
}
