//! No, in clear words: taken, sold out, too many, over, closed; and what to do instead.

use leasehold_api::{ItemSpec, PolicySpec};
use leasehold_client::Request;
use leasehold_testkit::Screen;
use serde_json::json;

use crate::house::{House, Person, rules};

/// Two browsers want one seat; the other one presses the button at once, or when it has heard of the first one's hold.
async fn fight(hears_first: bool) {
    let house = House::open();
    house.sell("gala", 0, rules(120)).await;
    let mut one = house.visitor("gala", Screen::DESKTOP).await;
    let mut other = house.visitor("gala", Screen::DESKTOP).await;
    for buyer in [&mut one, &mut other] {
        buyer.expect_in_log("status of 409");
        buyer.click_seat("A-3-5").await;
        buyer.until("document.querySelectorAll('.chip').length === 1").await;
    }
    // Whoever hears of the other's hold first cannot press the button any more.
    let press = "document.getElementById('hold-chosen').click();";
    if hears_first {
        one.run(press).await;
        other.until_sees("A-3-5", "held").await;
        other.run(press).await;
    } else {
        tokio::join!(one.run(press), other.run(press));
    }
    let settled = "document.getElementById('countdown') || document.querySelector('.offers button')";
    one.until(settled).await;
    other.until(settled).await;
    assert_eq!(house.seats("gala").await, (79, 1, 0), "one of them has it");
    let mut losers = 0;
    for buyer in [&mut one, &mut other] {
        losers += usize::from(!has_hold(buyer).await);
    }
    assert_eq!(losers, 1);
    let loser = if has_hold(&mut one).await { &mut other } else { &mut one };
    loser.click(".offers button").await;
    loser.until_there("#countdown").await;
    let seat = loser.run("return document.getElementById('map').getAttribute('mine');").await;
    let near = ["A-3-4", "A-3-6", "A-2-5", "A-4-5"];
    assert!(near.contains(&seat.as_str().unwrap()), "{seat} is beside, before or behind A-3-5");
    assert_eq!(house.seats("gala").await, (78, 2, 0));
    one.assert_no_complaints().await;
    other.assert_no_complaints().await;
}

#[tokio::test]
async fn two_browsers_fight_for_one_seat_and_the_loser_is_offered_others_nearby() {
    fight(false).await;
}

#[tokio::test]
async fn whoever_hears_of_it_before_the_click_is_offered_others_nearby_too() {
    fight(true).await;
}

#[tokio::test]
async fn a_seat_that_was_refused_is_not_offered_again_though_the_map_still_shows_it_as_free() {
    let house = House::open();
    house.sell("gala", 0, rules(120)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.click_seat("A-3-5").await;
    // The refusal arrives, and the stream has nothing of it yet.
    let refuse = "const send = window.fetch;
        window.fetch = async () => {
          window.fetch = send;
          return new Response(JSON.stringify({ code: 'seat-taken', seats: ['A-3-5'] }), { status: 409 });
        };
        document.getElementById('hold-chosen').click();";
    buyer.run(refuse).await;
    buyer.until_says("Taken a moment ago").await;
    assert_eq!(buyer.sees("A-3-5").await, "free");
    let offers = buyer.run("return document.querySelector('.offers').innerText;").await;
    assert!(!offers.as_str().unwrap().contains("row 3 · 5"), "{offers}");
    buyer.click(".offers button").await;
    buyer.until_there("#countdown").await;
    buyer.assert_no_complaints().await;
}

async fn has_hold(buyer: &mut Person) -> bool {
    buyer.run("return document.getElementById('countdown') !== null;").await == true
}

#[tokio::test]
async fn a_seat_that_was_taken_a_moment_ago_is_refused_in_words() {
    let house = House::open();
    house.sell("gala", 0, rules(120)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.expect_in_log("status of 409");
    buyer.click_seat("A-1-1").await;
    buyer.click_seat("A-1-2").await;
    buyer.until("document.querySelectorAll('.chip').length === 2").await;
    // Between the click and the request somebody else is faster.
    let script = "const send = window.fetch;
        window.fetch = async (...request) => {
          window.fetch = send;
          const rival = JSON.stringify({ items: [{ seat: 'A-1-1' }], holder: 'somebody' });
          await send('/v1/events/gala/holds', { method: 'POST', headers: { 'content-type': 'application/json' }, body: rival });
          return send(...request);
        };
        document.getElementById('hold-chosen').click();";
    buyer.run(script).await;
    buyer.until_says("Taken a moment ago").await;
    buyer.until_says("Section A, row 1, seat 1 was taken by someone else just now").await;
    // That the seat went comes by the stream as well, and does not push the offers of two aside.
    buyer.until_sees("A-1-1", "held").await;
    assert_eq!(buyer.run("return document.querySelectorAll('.offers button').length;").await, 3);
    assert!(buyer.text_of(".offers button").await.starts_with("Hold "));
    assert_eq!(house.seats("gala").await, (79, 1, 0), "all or none: the second one is not held either");
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn every_other_refusal_has_its_words_too() {
    let house = House::open();
    house.sell("gala", 0, rules(120)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    for (status, code, words) in [
        (409, "event-closed", "Not on sale"),
        (409, "limit-per-holder", "That is too many"),
        (422, "invalid", "That does not work"),
        (400, "bad-request", "That did not work"),
    ] {
        buyer.expect_in_log(&format!("status of {status}"));
        buyer.click_seat("A-1-1").await;
        // The server's next answer to this page.
        let answer = format!(
            "const send = window.fetch;
             window.fetch = async () => {{
               window.fetch = send;
               return new Response(JSON.stringify({{ code: {code:?}, title: 'no', status: {status} }}), {{ status: {status} }});
             }};
             document.getElementById('hold-chosen').click();"
        );
        buyer.run(&answer).await;
        buyer.until_says(words).await;
        buyer.run("document.getElementById('map').clear();").await;
    }
    // A server that is too busy, or away, is asked again by itself.
    buyer.click_seat("A-1-1").await;
    let busy = "const send = window.fetch;
        window.fetch = async () => {
          window.fetch = async () => { window.fetch = send; throw new TypeError('no connection'); };
          return new Response(JSON.stringify({ code: 'overloaded', status: 503 }), { status: 503, headers: { 'retry-after': '1' } });
        };
        document.getElementById('hold-chosen').click();";
    buyer.run(busy).await;
    buyer.until_says("Still asking the server.").await;
    buyer.until_there("#countdown").await;
    assert_eq!(house.seats("gala").await, (79, 1, 0));
    buyer.assert_no_complaints().await;
}

/// The forty seats of a section.
fn seats_of(section: &str) -> impl Iterator<Item = String> {
    (1..=4).flat_map(move |row| (1..=10).map(move |seat| format!("{section}-{row}-{seat}")))
}

/// Somebody else takes all of these at once.
async fn hold_all(house: &House, seats: impl Iterator<Item = String>) {
    let items: Vec<_> = seats.map(|seat| json!({"seat": seat})).collect();
    let body = json!({"items": items, "holder": "somebody"});
    let held = house.client().send(Request::post("/v1/events/gala/holds", &body)).await.unwrap();
    assert_eq!(held.status, 201);
}

#[tokio::test]
async fn best_seats_that_are_not_together_are_said() {
    let house = House::open();
    house.sell("gala", 0, rules(120)).await;
    // All of section A but one seat.
    hold_all(&house, seats_of("A").skip(1)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.expect_in_log("status of 409");
    buyer.click("input[name=way][value=best]").await;
    buyer.run("document.getElementById('where').value = 'A';").await;
    buyer.click("#hold-best").await;
    buyer.until_says("No such seats together").await;
    buyer
        .until_says(
            "Section A has no 2 free seats together. 41 places are free in the whole venue. 39 are in",
        )
        .await;
    // The offer looks everywhere, and finds them in the other section.
    buyer.until("document.querySelector('.offers button')?.textContent === 'Look in all sections'").await;
    buyer.click(".offers button").await;
    buyer.until_says("Section B").await;
    buyer.click("#release").await;
    buyer.until_says("Given back").await;
    buyer.assert_no_complaints().await;
}

/// From now on every request of this page to such a path that changes something is answered so, or not at all; and it
/// does not wait long before it asks again.
async fn answer_all(buyer: &mut Person, path: &str, answer: Option<(u16, &str)>) {
    let answer = match answer {
        Some((status, code)) => {
            format!("return new Response(JSON.stringify({{ code: {code:?} }}), {{ status: {status} }});")
        }
        None => "throw new TypeError('no connection');".to_owned(),
    };
    let script = format!(
        "window.send ??= window.fetch;
         window.wait ??= window.setTimeout;
         window.setTimeout = (work, ms) => window.wait(work, ms < 6_000 ? ms / 50 : ms);
         window.fetch = async (path, options) => {{
           if (['GET', undefined].includes(options?.method) || !path.endsWith({path:?})) return window.send(path, options);
           {answer}
         }};"
    );
    buyer.run(&script).await;
}

async fn answer_again(buyer: &mut Person) {
    buyer.run("window.fetch = window.send; window.setTimeout = window.wait;").await;
}

#[tokio::test]
async fn a_server_that_stays_busy_or_silent_has_its_words_and_nothing_is_lost() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.click_seat("A-1-1").await;
    for (answer, words) in [
        (Some((503, "overloaded")), "Very busy right now"),
        (Some((429, "quota-exceeded")), "Very busy right now"),
        (Some((503, "outcome-unknown")), "No connection"),
        (None, "No connection"),
    ] {
        answer_all(&mut buyer, "/holds", answer).await;
        buyer.click("#hold-chosen").await;
        buyer.until_says(words).await;
        answer_again(&mut buyer).await;
        buyer.run("document.querySelector('#notice').hidden = true;").await;
    }
    buyer.click("#hold-chosen").await;
    buyer.until_there("#countdown").await;
    assert_eq!(house.seats("gala").await, (79, 1, 0), "asked five times, held once");

    buyer.click("#pay").await;
    answer_all(&mut buyer, "/payment", Some((429, "payments-busy"))).await;
    buyer.click("#pay-now").await;
    buyer.until_says("Very busy right now").await;
    // The bank has paid, and the server cannot be told.
    answer_all(&mut buyer, "/confirm", None).await;
    buyer.click("#pay-now").await;
    buyer.until("document.querySelector('.offers button')?.textContent === 'Ask again'").await;
    buyer.until_says("No connection").await;
    answer_again(&mut buyer).await;
    buyer.click(".offers button").await;
    buyer.until_there("#done").await;
    assert_eq!(house.seats("gala").await, (79, 0, 1));
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn no_more_time_where_none_can_be_added_and_words_where_it_was_added_elsewhere() {
    let house = House::open();
    house.sell("gala", 0, PolicySpec { extends_max: Some(0), ..rules(120) }).await;
    house.sell("opera", 0, PolicySpec { extends_max: Some(1), ..rules(120) }).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.expect_in_log("status of 409");
    buyer.take(&["A-1-1"]).await;
    assert_eq!(buyer.run("return document.getElementById('extend').disabled;").await, true);

    buyer.open(&house.url("/events/opera")).await;
    buyer.until_there("#hold-chosen").await;
    buyer.take(&["A-1-1"]).await;
    let elsewhere =
        "const { hold_id, secret } = JSON.parse(localStorage.getItem('leasehold:cart:opera'));
        const headers = { 'content-type': 'application/json', 'hold-secret': secret };
        return (await fetch(`/v1/holds/${hold_id}`, { method: 'PATCH', headers, body: '{\"extend_ms\": 130000}' })).status;";
    assert_eq!(buyer.run(elsewhere).await, 200);
    buyer.click("#extend").await;
    buyer.until_says("No more time can be added").await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn best_seats_of_a_venue_without_a_free_one_are_sold_out_for_now() {
    let house = House::open();
    house.sell("gala", 0, rules(120)).await;
    hold_all(&house, seats_of("A")).await;
    hold_all(&house, seats_of("B")).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.expect_in_log("status of 409");
    buyer.click("input[name=way][value=best]").await;
    buyer.click("#hold-best").await;
    buyer.until_says("Sold out for now").await;
    buyer.until_says("Nothing is free right now. 80 are in other people’s carts").await;
    assert_eq!(buyer.run("return document.querySelectorAll('.offers button').length;").await, 0);
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_chosen_seat_that_goes_is_replaced_beside_those_that_stay() {
    let house = House::open();
    house.sell("gala", 0, rules(120)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    for seat in ["A-1-1", "A-1-2", "A-1-3"] {
        buyer.click_seat(seat).await;
    }
    buyer.until("document.querySelectorAll('.chip').length === 3").await;
    // What appears by itself moves no button under the pointer. The browser does not count what follows a click.
    let watch = "await new Promise((next) => setTimeout(next, 600));
        window.shifts = [];
        new PerformanceObserver((list) => window.shifts.push(...list.getEntries().filter((one) => !one.hadRecentInput)))
          .observe({ type: 'layout-shift' });";
    buyer.run(watch).await;
    house.hold("gala", ItemSpec::seat("A-1-3"), "somebody").await;
    buyer.until_says("Someone was faster").await;
    let shifted = buyer.run("return window.shifts.reduce((sum, one) => sum + one.value, 0);").await;
    assert!(shifted.as_f64().unwrap() < 0.02, "the page jumped by {shifted}");
    buyer.until("document.querySelectorAll('.chip').length === 2").await;
    buyer.click(".offers button").await;
    buyer.until("document.querySelectorAll('.chip').length === 3").await;
    buyer.click("#hold-chosen").await;
    buyer.until_there("#countdown").await;
    let mine = buyer.run("return document.getElementById('map').getAttribute('mine');").await;
    let mine: Vec<&str> = mine.as_str().unwrap().split(' ').collect();
    assert!(mine.len() == 3 && mine.contains(&"A-1-1") && mine.contains(&"A-1-2"), "{mine:?}");
    assert_eq!(house.seats("gala").await, (76, 4, 0));

    // Two of them go at once.
    buyer.click("#release").await;
    buyer.until_says("Given back").await;
    for seat in ["A-2-1", "A-2-2"] {
        buyer.click_seat(seat).await;
    }
    buyer.until("document.querySelectorAll('.chip').length === 2").await;
    hold_all(&house, ["A-2-1", "A-2-2"].map(str::to_owned).into_iter()).await;
    buyer
        .until_says("2 of your seats just went to someone else, and are no longer among your chosen ones.")
        .await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn sold_out_says_how_many_are_in_the_carts_of_others() {
    let house = House::open();
    house.sell("gala", 3, rules(120)).await;
    house.hold("gala", ItemSpec::pool("floor", 2), "somebody").await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.expect_in_log("status of 409");
    buyer.click("input[name=way][value=standing]").await;
    buyer.until_says("1 ticket left, 2 more in other people’s carts").await;
    buyer.click("#hold-standing").await;
    buyer
        .until_says("1 place is free. 2 are in other people’s carts and may come back in a few minutes.")
        .await;
    buyer.click(".offers button").await;
    buyer.until_there("#countdown").await;
    assert_eq!(buyer.run("return document.querySelector('.items').innerText.includes('× 1');").await, true);
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn too_many_for_one_person_is_said_with_the_limit() {
    let house = House::open();
    house.sell("gala", 0, PolicySpec { units_per_holder_max: Some(2), ..rules(120) }).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.expect_in_log("status of 422");
    // Nobody is let choose what would be refused.
    for seat in ["B-1-1", "B-1-2", "B-1-3"] {
        buyer.click_seat(seat).await;
    }
    buyer.until_says("Up to 2 seats can be held in one go.").await;
    buyer.until("document.querySelectorAll('.chip').length === 2").await;
    buyer.click("input[name=way][value=best]").await;
    buyer.click("[aria-label='How many seats: more']").await;
    buyer.until_says("Hold the best 2 together").await;
    // What was bought counts too.
    buyer.click("#hold-best").await;
    buyer.until_there("#countdown").await;
    buyer.pay("pays").await;
    buyer.click("#more").await;
    buyer.click("input[name=way][value=best]").await;
    buyer.click("#hold-best").await;
    buyer.until_says("One person can have at most 2 tickets").await;
    assert_eq!(house.seats("gala").await, (78, 0, 2));
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_hold_that_ran_out_says_so_and_can_be_had_again() {
    let house = House::open();
    house.sell("gala", 0, rules(8)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.take(&["A-1-1"]).await;
    buyer.until("document.querySelector('.timer').dataset.urgency === 'soon'").await;
    buyer.until_says("Your time is over").await;
    buyer.until_sees("A-1-1", "free").await;
    buyer.click(".offers button").await;
    buyer.until_there("#countdown").await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn no_more_time_than_the_cap_and_a_revoked_hold_is_explained() {
    let house = House::open();
    house.sell("gala", 0, PolicySpec { hold_total_max_ms: Some(60_000), ..rules(60) }).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.take(&["A-1-1"]).await;
    assert_eq!(buyer.run("return document.getElementById('extend').disabled;").await, true);
    let holds = house.client().send(Request::get("/v1/events/gala/holds")).await.unwrap();
    let holds: leasehold_api::HoldList = holds.json().unwrap();
    let revoke =
        Request::post(format!("/v1/holds/{}/revoke", holds.holds[0].hold_id), &json!({"reason": "camera"}));
    assert_eq!(house.client().send(revoke).await.unwrap().status, 200);
    buyer.until_says("Taken back by the organiser").await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_closed_event_and_one_that_is_not_there_say_so() {
    let house = House::open();
    house.sell("gala", 10, rules(120)).await;
    let mut buyer = house.visitor("gala", Screen::PHONE).await;
    let close = Request::patch("/v1/events/gala", &json!({"state": "closed"}));
    assert_eq!(house.client().send(close).await.unwrap().status, 200);
    buyer.until_says("Not on sale").await;
    buyer.until("document.getElementById('hold-chosen').disabled").await;
    buyer.assert_no_complaints().await;

    let mut lost = Person::sit_down(Screen::DESKTOP).await;
    lost.expect_in_log("status of 404");
    lost.open(&house.url("/events/nowhere")).await;
    lost.until_says("There is no such event").await;
    lost.assert_no_complaints().await;
}

#[tokio::test]
async fn names_that_look_like_markup_are_shown_as_text() {
    let house = House::open();
    let event = leasehold_api::CreateEvent {
        id: "gala".to_owned(),
        name: Some("<img src=x onerror=\"document.title='owned'\">".to_owned()),
        seats: vec![
            leasehold_api::SeatSpec::Id("A-1".to_owned()),
            leasehold_api::SeatSpec::Id("A-2".to_owned()),
        ],
        ..leasehold_api::CreateEvent::default()
    };
    house.create(&event).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.until_says("<img src=x").await;
    buyer.take(&["A-1"]).await;
    buyer.pay("pays").await;
    buyer.until_there("#done").await;
    assert_eq!(buyer.run("return document.querySelectorAll('img[src=x]').length;").await, 0);
    buyer.assert_no_complaints().await;
}

/// Payments of this page's hold, begun without it: by the shop, or in another browser.
async fn begin_payments(buyer: &mut Person, count: usize, failed: bool) {
    let script = format!(
        "const {{ hold_id, secret }} = JSON.parse(localStorage.getItem('leasehold:cart:gala'));
         const headers = {{ 'content-type': 'application/json', 'hold-secret': secret }};
         const tell = (path, ref) => fetch(`/v1/holds/${{hold_id}}${{path}}`, {{ method: 'POST', headers, body: JSON.stringify({{ payment_ref: ref }}) }});
         for (let one = 0; one < {count}; one += 1) {{
           if ((await tell('/payment', `other-${{one}}`)).status !== 200) return one;
           if ({failed} && (await tell('/payment/failed', `other-${{one}}`)).status !== 200) return one;
         }}
         return {count};"
    );
    assert_eq!(buyer.run(&script).await, count);
}

#[tokio::test]
async fn a_hold_that_is_paid_for_elsewhere_has_words_of_its_own() {
    let house = House::open();
    house.sell("gala", 0, rules(120)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.expect_in_log("status of 409");
    buyer.take(&["A-1-1"]).await;
    begin_payments(&mut buyer, 1, false).await;
    buyer.click("#extend").await;
    buyer.until_says("Already being paid for").await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_hold_with_too_many_payments_has_words_of_its_own() {
    let house = House::open();
    house.sell("gala", 0, rules(120)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.expect_in_log("status of 409");
    buyer.take(&["A-1-1"]).await;
    begin_payments(&mut buyer, 20, true).await;
    buyer.pay("pays").await;
    buyer.until_says("Too many attempts").await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_button_that_asks_again_says_so_and_a_refused_hold_says_how_it_ended() {
    let house = House::open();
    house.sell("gala", 0, rules(60)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.take(&["A-1-1"]).await;
    // The server's next answer to this page.
    let answer = |status: u16, body: &str, button: &str| {
        format!(
            "const send = window.fetch;
             window.fetch = async () => {{
               window.fetch = send;
               return new Response(JSON.stringify({body}), {{ status: {status} }});
             }};
             document.getElementById({button:?}).click();"
        )
    };
    buyer.run(&answer(503, "{ code: 'overloaded' }", "extend")).await;
    buyer.until_says("Still asking the server.").await;
    buyer.until("document.getElementById('extend').textContent === 'Extended'").await;
    buyer.until("document.getElementById('notice').hidden").await;
    assert!(buyer.countdown().await > 60);
    let ends = [("revoked", "Taken back by the organiser", "A-2-1"), ("released", "Given back", "A-3-1")];
    for (state, words, next) in ends {
        let body = format!("{{ code: 'hold-expired', detail: 'the hold is {state}' }}");
        buyer.run(&answer(410, &body, "release")).await;
        buyer.until_says(words).await;
        buyer.take(&[next]).await;
    }
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_hold_that_could_not_be_asked_about_is_found_before_another_takes_its_place() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    // A tab beside this one holds a seat; this one hears of it, and its question about it is refused.
    let beside = "const headers = { 'content-type': 'application/json' };
        const body = JSON.stringify({ items: [{ seat: 'A-1-1' }] });
        const answer = await fetch('/v1/events/gala/holds', { method: 'POST', headers, body });
        const { hold_id, secret } = await answer.json();
        localStorage.setItem('leasehold:cart:gala', JSON.stringify({ hold_id, secret }));
        const send = window.fetch;
        window.fetch = async () => {
          window.fetch = send;
          return new Response(JSON.stringify({ code: 'bad-request' }), { status: 400 });
        };
        window.dispatchEvent(new StorageEvent('storage', { key: 'leasehold:cart:gala' }));
        return hold_id;";
    let hold = buyer.run(beside).await;
    buyer.until_sees("A-1-1", "held").await;
    buyer.click_seat("A-2-2").await;
    buyer.click("#hold-chosen").await;
    buyer.until_there("#countdown").await;
    buyer.until_says("Section A, row 1, seat 1").await;
    let kept = buyer.run("return JSON.parse(localStorage.getItem('leasehold:cart:gala')).hold_id;").await;
    assert_eq!(kept, hold, "its secret is in this browser only");
    assert_eq!(house.seats("gala").await, (79, 1, 0));
    buyer.assert_no_complaints().await;
}
