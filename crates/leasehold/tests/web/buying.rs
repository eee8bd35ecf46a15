//! Buying: choose, hold, count down, extend, pay, confirm; and finding one's hold again.

use leasehold_api::{CreateEvent, ItemSpec, PolicySpec, PoolSpec};
use leasehold_client::Request;
use leasehold_testkit::Screen;

use crate::house::{House, rules};

#[tokio::test]
async fn a_buyer_holds_two_seats_extends_pays_and_has_a_booking() {
    let house = House::open();
    house.sell("gala", 0, rules(40)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.click_seat("A-2-3").await;
    buyer.click_seat("A-2-4").await;
    buyer.until("document.querySelectorAll('.chip').length === 2").await;
    buyer.click("#hold-chosen").await;
    buyer.until("document.getElementById('speech').textContent === 'Held for you.'").await;

    // The countdown is the server's answer less a margin, and runs.
    let first = buyer.countdown().await;
    assert!(first > 0 && first <= 38, "{first} s of 40 s");
    buyer
        .until(&format!("Number(document.getElementById('countdown').textContent.split(':')[1]) < {first}"))
        .await;
    buyer.until_sees("A-2-3", "held").await;
    assert_eq!(house.seats("gala").await, (78, 2, 0));

    buyer.click("#extend").await;
    buyer.until("document.getElementById('extend').textContent === 'Extended'").await;
    assert!(buyer.countdown().await > 40, "forty seconds more than were left");

    buyer.pay("pays").await;
    buyer.until_there("#done").await;
    let booking = buyer.text_of("#booking").await;
    let read = house.client().send(Request::get(format!("/v1/bookings/{booking}"))).await.unwrap();
    assert_eq!(read.status, 200);
    assert_eq!(house.seats("gala").await, (78, 0, 2));
    buyer.until_sees("A-2-4", "sold").await;

    // The ticket is still there after a reload, and the next purchase begins with a click.
    buyer.reload().await;
    assert_eq!(buyer.text_of("#booking").await, booking);
    buyer.click("#more").await;
    buyer.until_there("#hold-chosen").await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn an_extension_goes_as_far_as_the_cap_and_a_reload_near_the_end_still_warns() {
    let house = House::open();
    house.sell("gala", 0, PolicySpec { hold_total_max_ms: Some(25_000), ..rules(20) }).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.take(&["A-1-1"]).await;
    buyer.click("#extend").await;
    buyer.until("document.getElementById('extend').textContent === 'Extended'").await;
    let left = buyer.countdown().await;
    assert!(left > 16 && left <= 23, "{left} s of 25 s");
    let urgent = "document.querySelector('.timer').dataset.urgency === 'soon'";
    buyer.until(urgent).await;
    buyer.reload().await;
    buyer.until_there("#countdown").await;
    buyer.until(urgent).await;
    assert!(
        buyer.countdown().await > 3,
        "it is the last third of the whole, not of what was left at the reload"
    );
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn the_floor_that_is_pressed_is_the_one_that_is_chosen() {
    let house = House::open();
    let pool = |id: &str, capacity| PoolSpec { id: id.to_owned(), capacity };
    let event = CreateEvent {
        id: "club".to_owned(),
        pools: vec![pool("floor", 20), pool("balcony", 7)],
        ..CreateEvent::default()
    };
    house.create(&event).await;
    let mut buyer = house.visitor("club", Screen::DESKTOP).await;
    // The right one of two floors, which stand below the stage.
    let middle = "const box = document.getElementById('map').getBoundingClientRect();
        return [Math.round(box.left + box.width / 2), Math.round(box.top + box.height / 2)];";
    let middle = buyer.run(middle).await;
    let (x, y) = (middle[0].as_i64().unwrap(), middle[1].as_i64().unwrap());
    buyer.click_at((x + 120, y + 40)).await;
    buyer.until_says("7 tickets left").await;
    buyer.click("#hold-standing").await;
    buyer.until_there("#countdown").await;
    buyer.until_says("Balcony, standing").await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn the_list_of_sections_brings_the_map_closer_and_back() {
    let house = House::open();
    house.sell("gala", 0, rules(60)).await;
    house.hold("gala", ItemSpec::seat("B-1-1"), "somebody").await;
    let mut buyer = house.visitor("gala", Screen::PHONE).await;
    let mut width = async |section: &str| {
        let choose = format!(
            "const finder = document.getElementById('finder');
             finder.value = {section:?};
             finder.dispatchEvent(new Event('change'));
             return finder.selectedOptions[0].textContent;"
        );
        let said = buyer.run(&choose).await;
        let (left, right) = (buyer.place_of("B-1-1").await, buyer.place_of("B-1-10").await);
        (said, ((right.0 - left.0) as f64).hypot((right.1 - left.1) as f64))
    };
    let (all, far) = width("").await;
    let (section, near) = width("B").await;
    assert_eq!((all, section), ("The whole venue".into(), "Section B · 39 free".into()));
    assert!(near > far * 1.2, "{near} and {far}");
    assert!((width("").await.1 - far).abs() < 2.0);
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_booking_that_was_cancelled_is_no_ticket_any_more() {
    let house = House::open();
    house.sell("gala", 0, rules(60)).await;
    let mut buyer = house.visitor("gala", Screen::PHONE).await;
    buyer.take(&["A-1-1"]).await;
    buyer.pay("pays").await;
    buyer.until_there("#done").await;
    let booking = buyer.text_of("#booking").await;
    let cancel = Request::post(format!("/v1/bookings/{booking}/cancel"), &serde_json::json!({}));
    assert_eq!(house.client().send(cancel).await.unwrap().status, 200);
    buyer.reload().await;
    buyer.until_says("Your booking was cancelled").await;
    buyer.until_there("#hold-chosen").await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn the_best_seats_together_and_standing_tickets_are_held_without_the_map() {
    let house = House::open();
    house.sell("gala", 50, rules(60)).await;
    house.hold("gala", ItemSpec::seat("A-1-5"), "somebody").await;
    let mut buyer = house.visitor("gala", Screen::PHONE).await;
    buyer.click("input[name=way][value=best]").await;
    buyer.click("[aria-label='How many seats: more']").await;
    buyer.until_says("Hold the best 3 together").await;
    buyer.run("document.getElementById('where').value = 'B';").await;
    buyer.click("#hold-best").await;
    buyer.until_there("#countdown").await;
    let held =
        buyer.run("return document.getElementById('map').getAttribute('mine').split(' ').length;").await;
    assert_eq!(held, 3);
    assert_eq!(
        buyer.run("return document.querySelector('.items').innerText.includes('Section B');").await,
        true
    );

    buyer.click("#release").await;
    buyer.until_says("Given back").await;
    buyer.click("input[name=way][value=standing]").await;
    buyer.until_says("50 tickets left").await;
    buyer.click("#hold-standing").await;
    buyer.until_there("#countdown").await;
    buyer.until_says("Floor, standing").await;
    buyer.pay("pays").await;
    buyer.until_there("#done").await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_reload_and_a_second_tab_find_the_hold_and_what_one_tab_does_the_other_sees() {
    let house = House::open();
    house.sell("gala", 0, rules(120)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.take(&["B-1-1"]).await;
    buyer.reload().await;
    buyer.until_there("#countdown").await;
    buyer.until_says("Section B, row 1, seat 1").await;

    let (first, second) = buyer.second_tab().await;
    buyer.open(&house.url("/events/gala")).await;
    buyer.until_there("#countdown").await;
    buyer.click("#release").await;
    buyer.until_says("Given back").await;
    buyer.to_tab(&first).await;
    buyer.until_there("#hold-chosen").await;
    assert_eq!(house.seats("gala").await, (80, 0, 0));

    // And the other way round: the hold of one tab is the hold of both.
    buyer.take(&["B-1-2"]).await;
    buyer.to_tab(&second).await;
    buyer.until_there("#countdown").await;
    buyer.until_says("Section B, row 1, seat 2").await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_page_that_was_closed_while_the_answer_was_on_its_way_finds_the_hold_it_got() {
    let house = House::open();
    house.sell("gala", 0, rules(120)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.click_seat("A-1-1").await;
    // The request arrives, and the page is gone before the answer.
    let lose = "const send = window.fetch;
        window.fetch = async (...request) => { await send(...request); window.arrived = true; return new Promise(() => {}); };
        document.getElementById('hold-chosen').click();";
    buyer.run(lose).await;
    buyer.until("window.arrived").await;
    assert_eq!(house.seats("gala").await, (79, 1, 0));
    assert_eq!(buyer.run("return document.getElementById('countdown');").await, serde_json::Value::Null);
    buyer.reload().await;
    buyer.until_there("#countdown").await;
    buyer.until_says("Section A, row 1, seat 1").await;
    assert_eq!(house.seats("gala").await, (79, 1, 0), "asking again under the same key took nothing more");
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn seats_change_before_the_buyers_eyes() {
    let house = House::open();
    house.sell("gala", 20, rules(120)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    assert_eq!(buyer.sees("A-1-1").await, "free");
    let hold = house.hold("gala", ItemSpec::seat("A-1-1"), "somebody").await;
    buyer.until_sees("A-1-1", "held").await;
    house.hold("gala", ItemSpec::pool("floor", 5), "somebody").await;
    buyer.until_says("94 free · 6 in carts · 0 sold").await;
    let path = format!("/v1/holds/{}/confirm", hold.hold_id);
    let confirm = leasehold_client::Request::post(path, &serde_json::json!({})).secret(hold.secret.unwrap());
    assert_eq!(house.client().send(confirm).await.unwrap().status, 201);
    buyer.until_sees("A-1-1", "sold").await;
    buyer.until_says("94 free · 5 in carts · 1 sold").await;
    buyer.assert_no_complaints().await;
}
