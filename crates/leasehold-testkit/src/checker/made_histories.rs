//! The rules about seats, fences, keys and owners: for each a history that breaks it, and one that keeps it.

use serde_json::json;

use super::Rule;
use super::made::{Made, hold_view, stamp};

fn breaks(made: Made, rule: Rule) {
    let checked = made.judge();
    assert!(checked.broke(rule), "{rule:?} was not reported: {:?}", checked.violations);
}

fn keeps(made: Made) {
    made.judge().assert_clean();
}

/// A hold of seat A that was sold as b1 by 30.
fn first_sale() -> Made {
    Made::new().hold((0, 10), "h1", "A", 1, 60_000).sold((20, 30), "h1", "b1", "A")
}

#[test]
fn a_seat_sold_twice_is_caught() {
    let again = first_sale().hold((15, 40), "h2", "A", 2, 60_000).sold((50, 60), "h2", "b2", "A");
    breaks(again, Rule::SoldOnce);
}

#[test]
fn a_seat_sold_again_after_a_cancel_is_fine() {
    let again = first_sale().cancelled((40, 50), "b1").hold((60, 70), "h2", "A", 2, 60_000);
    keeps(again.sold((80, 90), "h2", "b2", "A"));
}

#[test]
fn a_cancel_after_the_second_sale_excuses_nothing() {
    let again = first_sale().hold((15, 40), "h2", "A", 2, 60_000).sold((50, 60), "h2", "b2", "A");
    breaks(again.cancelled((70, 80), "b1"), Rule::SoldOnce);
}

#[test]
fn a_refused_cancel_excuses_nothing() {
    let refused = first_sale().answered((40, 45), "POST /v1/bookings/b1/cancel", &[], 404, &json!({}));
    let again = refused.hold((46, 48), "h2", "A", 2, 60_000).sold((50, 60), "h2", "b2", "A");
    breaks(again, Rule::SoldOnce);
}

#[test]
fn a_hold_that_became_two_bookings_is_caught() {
    breaks(first_sale().sold((40, 50), "h1", "b2", "B"), Rule::SoldOnce);
}

#[test]
fn two_live_holds_of_one_seat_are_caught() {
    let first = Made::new().hold((0, 10), "h1", "A", 1, 5_000);
    breaks(first.hold((4_000, 4_010), "h2", "A", 2, 5_000), Rule::HeldOnce);
}

#[test]
fn a_hold_after_the_end_of_another_is_fine() {
    let first = Made::new().hold((0, 10), "h1", "A", 1, 5_000);
    keeps(first.hold((5_000, 5_010), "h2", "A", 2, 5_000));
}

#[test]
fn a_hold_after_a_release_is_fine_even_if_the_release_was_not_answered() {
    let first = Made::new().hold((0, 10), "h1", "A", 1, 5_000);
    let released = first.unanswered(100, "DELETE /v1/holds/h1", "secret-h1");
    keeps(released.hold((200, 210), "h2", "A", 2, 5_000));
}

#[test]
fn a_release_with_a_wrong_secret_does_not_explain_a_second_hold() {
    let first = Made::new().hold((0, 10), "h1", "A", 1, 5_000);
    let tried = first.unanswered(100, "DELETE /v1/holds/h1", "wrong");
    breaks(tried.hold((200, 210), "h2", "A", 2, 5_000), Rule::HeldOnce);
}

#[test]
fn a_hold_within_anothers_extension_is_caught() {
    let extended = Made::new().hold((0, 10), "h1", "A", 1, 5_000).extended((20, 30), "h1", "A", 20_000);
    breaks(extended.hold((6_000, 6_010), "h2", "A", 2, 5_000), Rule::HeldOnce);
}

#[test]
fn a_hold_during_anothers_payment_is_caught() {
    let mut view = hold_view("h1", "confirming", 0, 1_000, json!([{"seat": "A", "fence": 1}]));
    view["version"] = json!(2);
    view["payment"] = json!({"payment_ref": "p", "deadline": stamp(30_000)});
    let pays = Made::new().hold((0, 10), "h1", "A", 1, 1_000).answered(
        (20, 30),
        "POST /v1/holds/h1/payment",
        &[("hold-secret", "secret-h1")],
        200,
        &view,
    );
    breaks(pays.hold((6_000, 6_010), "h2", "A", 2, 5_000), Rule::HeldOnce);
}

#[test]
fn a_hold_after_a_payment_of_unknown_outcome_is_fine() {
    let pays = Made::new().hold((0, 10), "h1", "A", 1, 60_000);
    let pays = pays.unanswered(20, "POST /v1/holds/h1/payment", "secret-h1");
    keeps(pays.hold((6_000, 6_010), "h2", "A", 2, 5_000));
}

/// Seats A and B kept back from 100 to 110.
fn kept_back(made: Made) -> Made {
    made.blocked((100, 110), "k1", &["A", "B"])
}

#[test]
fn a_hold_of_a_seat_that_is_kept_back_is_caught() {
    breaks(kept_back(Made::new()).hold((200, 210), "h1", "A", 1, 5_000), Rule::HeldOnce);
    keeps(kept_back(Made::new()).hold((200, 210), "h1", "C", 1, 5_000));
    keeps(kept_back(Made::new()).unblocked((205, 220), "k1").hold((200, 210), "h1", "A", 1, 5_000));
    breaks(
        kept_back(Made::new()).hold((200, 210), "h1", "A", 1, 5_000).unblocked((211, 220), "k1"),
        Rule::HeldOnce,
    );
}

#[test]
fn keeping_back_what_somebody_holds_is_caught() {
    breaks(kept_back(Made::new().hold((0, 10), "h1", "A", 1, 5_000)), Rule::HeldOnce);
    keeps(kept_back(Made::new().hold((0, 10), "h1", "A", 1, 100)));
    let released = Made::new().hold((0, 10), "h1", "A", 1, 5_000);
    keeps(kept_back(released.unanswered(105, "DELETE /v1/holds/h1", "secret-h1")));
}

#[test]
fn a_seat_that_was_added_to_a_hold_is_not_kept_back_too() {
    let added = |span| {
        let both = json!([{"seat": "C", "fence": 1}, {"seat": "A", "fence": 1}]);
        let mut view = hold_view("h1", "held", 0, 5_000, both);
        view["version"] = json!(2);
        let first = kept_back(Made::new().hold((0, 10), "h1", "C", 1, 5_000));
        first.answered(span, "PATCH /v1/holds/h1", &[("hold-secret", "secret-h1")], 200, &view)
    };
    breaks(added((20, 30)), Rule::HeldOnce);
    breaks(added((111, 120)), Rule::HeldOnce);
    keeps(added((109, 120)).unblocked((115, 118), "k1"));
}

#[test]
fn a_sale_of_a_seat_that_is_kept_back_is_caught() {
    let late = |made: Made| made.hold((0, 10), "h1", "A", 1, 50).sold((200, 210), "h1", "b1", "A");
    breaks(late(kept_back(Made::new())), Rule::HeldOnce);
    keeps(late(kept_back(Made::new()).unblocked((150, 160), "k1")));
    breaks(kept_back(first_sale()), Rule::HeldOnce);
    keeps(kept_back(first_sale().cancelled((40, 50), "b1")));
}

#[test]
fn a_seat_that_is_kept_back_twice_is_caught() {
    let again = |made: Made| made.blocked((200, 210), "k2", &["B"]);
    breaks(again(kept_back(Made::new())), Rule::HeldOnce);
    keeps(again(kept_back(Made::new()).unblocked((150, 160), "k1")));
}

#[test]
fn a_hold_of_a_sold_seat_is_caught() {
    breaks(first_sale().hold((40, 50), "h2", "A", 2, 5_000), Rule::HeldOnce);
}

#[test]
fn a_hold_whose_first_request_began_before_the_sale_is_not_blamed() {
    let line = "POST /v1/events/e/holds";
    let asked = Made::new().answered((0, 1), line, &[("idempotency-key", "key-h2")], 503, &json!({}));
    let sold = asked.hold((2, 10), "h1", "A", 1, 5).sold((20, 30), "h1", "b1", "A").cancelled((31, 35), "b1");
    keeps(sold.hold((40, 50), "h2", "A", 2, 5_000));
}

#[test]
fn a_sale_under_anothers_live_hold_is_caught() {
    let expired = Made::new().hold((0, 10), "h1", "A", 1, 1_000).hold((2_000, 2_010), "h2", "A", 2, 60_000);
    breaks(expired.sold((3_000, 3_010), "h1", "b1", "A"), Rule::HeldOnce);
}

#[test]
fn a_fence_that_falls_is_caught() {
    let first = Made::new().hold((0, 10), "h1", "A", 5, 1_000);
    breaks(first.hold((2_000, 2_010), "h2", "A", 4, 1_000), Rule::FencesGrow);
}

#[test]
fn a_fence_given_twice_is_caught_also_among_concurrent_calls() {
    let first = Made::new().hold((0, 3_000), "h1", "A", 5, 1_000);
    breaks(first.hold((2_000, 2_010), "h2", "A", 5, 1_000), Rule::FencesGrow);
}

#[test]
fn concurrent_calls_may_get_their_fences_in_any_order() {
    let first = Made::new().hold((0, 3_000), "h1", "A", 5, 1_000);
    keeps(first.hold((2_000, 2_010), "h2", "A", 4, 1_000));
}

#[test]
fn a_key_with_two_effects_is_caught() {
    let first = Made::new().hold((0, 10), "h1", "A", 1, 1_000);
    let view = hold_view("h2", "held", 2_000, 3_000, json!([{"seat": "A", "fence": 2}]));
    let headers = [("idempotency-key", "key-h1")];
    let again = first.answered((2_000, 2_010), "POST /v1/events/e/holds", &headers, 201, &view);
    breaks(again.with_body(&json!({"other": 1})), Rule::KeysOnce);
}

#[test]
fn a_repetition_that_is_refused_is_caught_and_a_refusal_before_the_grant_is_not() {
    let refused = |made: Made, span| {
        let problem = json!({"type": "urn:x", "title": "x", "status": 409, "code": "seat-taken"});
        made.answered(span, "POST /v1/events/e/holds", &[("idempotency-key", "key-h1")], 409, &problem)
    };
    let granted = |made: Made, span| made.hold(span, "h1", "A", 1, 1_000);
    breaks(refused(granted(Made::new(), (0, 10)), (20, 30)), Rule::KeysOnce);
    keeps(granted(refused(Made::new(), (0, 10)), (20, 30)));
    keeps(refused(granted(Made::new(), (0, 10)), (5, 15)));
}

#[test]
fn a_repetition_with_another_answer_is_caught() {
    let first = Made::new().hold((0, 10), "h1", "A", 1, 1_000);
    breaks(first.hold((5, 15), "h1", "A", 1, 1_000), Rule::KeysOnce);
}

#[test]
fn a_repetition_with_the_same_answer_is_fine() {
    let view = hold_view("h1", "held", 5, 1_000, json!([{"seat": "A", "fence": 1}]));
    keeps(Made::new().granted((0, 10), "h1", &view).granted((20, 30), "h1", &view));
}

#[test]
fn a_release_with_a_wrong_secret_is_caught() {
    let first = Made::new().hold((0, 10), "h1", "A", 1, 1_000);
    breaks(first.released((20, 30), "h1", "wrong"), Rule::OwnersOnly);
}

#[test]
fn a_payment_that_a_stranger_gives_up_is_caught() {
    let failed = |secret: &str| {
        let view = hold_view("h1", "held", 0, 1_000, json!([{"seat": "A", "fence": 1}]));
        let first = Made::new().hold((0, 10), "h1", "A", 1, 1_000);
        first.answered((20, 30), "POST /v1/holds/h1/payment/failed", &[("hold-secret", secret)], 200, &view)
    };
    breaks(failed("wrong"), Rule::OwnersOnly);
    keeps(failed("secret-h1"));
}

#[test]
fn a_release_by_the_owner_is_fine() {
    let first = Made::new().hold((0, 10), "h1", "A", 1, 1_000);
    keeps(first.released((20, 30), "h1", "secret-h1"));
}

#[test]
fn a_refused_release_with_a_wrong_secret_is_fine() {
    let first = Made::new().hold((0, 10), "h1", "A", 1, 1_000);
    let headers = [("hold-secret", "wrong")];
    keeps(first.answered((20, 30), "DELETE /v1/holds/h1", &headers, 404, &json!({})));
}
