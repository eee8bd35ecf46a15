//! The server goes away under the page. The page says that it does not know, and never that it does.

use leasehold_api::ItemSpec;
use leasehold_client::Request;
use leasehold_testkit::Screen;
use leasehold_testkit::servers::{Direction, FaultProxy};

use crate::house::{House, Person, rules};

/// A buyer whose connection can be cut, on the page of the gala.
async fn behind_a_proxy(house: &House) -> (FaultProxy, Person) {
    let proxy = FaultProxy::start(house.server.address()).await;
    let mut buyer = Person::sit_down(Screen::DESKTOP).await;
    buyer.expect_in_log("net::ERR_");
    buyer.open(&format!("http://{}/events/gala", proxy.address())).await;
    buyer.until("document.getElementById('map').connection === 'live'").await;
    (proxy, buyer)
}

#[tokio::test]
async fn a_page_outlives_its_server_with_the_hold_and_without_lying() {
    let mut house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.expect_in_log("net::ERR_");
    buyer.take(&["A-1-1"]).await;
    house.server.kill9();
    buyer.until_there("#stale").await;
    buyer.until("document.getElementById('connection').dataset.state === 'behind'").await;
    buyer.until_says("No connection. Your seats are kept by the server").await;
    assert!(buyer.countdown().await > 200, "the hold is still shown, and its time goes on");

    house.come_back();
    buyer.until("document.getElementById('connection').dataset.state === 'live'").await;
    buyer.until("document.getElementById('stale').hidden").await;
    house.hold("gala", ItemSpec::seat("B-4-10"), "somebody").await;
    buyer.until_sees("B-4-10", "held").await;
    buyer.pay("pays").await;
    buyer.until_there("#done").await;
    assert_eq!(house.seats("gala").await, (78, 1, 1));
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn an_event_that_is_not_there_any_more_is_not_shown_as_if_it_were() {
    let mut house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.expect_in_log("net::ERR_");
    buyer.expect_in_log("status of 404");
    house.server.kill9();
    house.come_back_empty();
    buyer.until("document.getElementById('connection').dataset.state === 'missing'").await;
    buyer.until_there("#stale").await;
    buyer.until_says("This event is not here any more. What you see is old.").await;
    // Put on sale again, it is read anew.
    house.sell("gala", 0, rules(300)).await;
    buyer.until("document.getElementById('stale').hidden").await;
    buyer.take(&["A-1-1"]).await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn what_happened_while_the_connection_was_cut_arrives_when_it_is_back() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let (proxy, mut buyer) = behind_a_proxy(&house).await;
    let read = "return performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('/availability')).length;";
    assert_eq!(buyer.run(read).await, 1);
    proxy.refuse().await;
    assert!(proxy.cut().await > 0, "the stream was there to be cut");
    buyer.until("document.getElementById('map').connection === 'behind'").await;
    let hold = house.hold("gala", ItemSpec::seat("A-1-1"), "somebody").await;
    house.hold("gala", ItemSpec::seat("A-1-2"), "somebody").await;
    let release = Request::delete(format!("/v1/holds/{}", hold.hold_id)).secret(hold.secret.unwrap());
    assert_eq!(house.client().send(release).await.unwrap().status, 200);
    assert_eq!(buyer.sees("A-1-2").await, "free", "it cannot know yet");
    proxy.pass().await;
    buyer.until_sees("A-1-2", "held").await;
    assert_eq!(buyer.sees("A-1-1").await, "free");
    buyer.until("document.getElementById('map').connection === 'live'").await;
    buyer.until_says("79 free · 1 in carts · 0 sold").await;
    assert_eq!(buyer.run(read).await, 1, "the stream went on from where it was; nothing was read anew");
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_stream_that_fell_silent_without_an_end_is_not_believed_and_replaced() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let (proxy, mut buyer) = behind_a_proxy(&house).await;
    // Nothing is closed: only the page itself can notice.
    proxy.swallow(Direction::Answers);
    house.hold("gala", ItemSpec::seat("A-1-1"), "somebody").await;
    buyer.until("document.getElementById('connection').dataset.state === 'behind'").await;
    buyer.until_there("#stale").await;
    proxy.pass().await;
    buyer.until_sees("A-1-1", "held").await;
    buyer.until("document.getElementById('map').connection === 'live'").await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_hold_whose_time_runs_out_while_the_server_is_away_is_over_only_when_the_server_says_so() {
    let mut house = House::open();
    house.sell("gala", 0, rules(12)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.expect_in_log("net::ERR_");
    buyer.take(&["A-1-1"]).await;
    house.server.kill9();
    buyer.until("document.getElementById('countdown')?.textContent === '0:00'").await;
    buyer.until_says("Asking the server how it stands.").await;
    let words = buyer.run("return document.body.innerText;").await;
    assert!(!words.as_str().unwrap().contains("Your time is over"), "{words}");
    house.come_back();
    buyer.until_says("Your time is over").await;
    assert_eq!(house.seats("gala").await, (80, 0, 0));
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_payment_that_succeeded_while_the_server_was_away_is_confirmed_when_it_is_back() {
    let mut house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.expect_in_log("net::ERR_");
    buyer.take(&["A-1-1"]).await;
    buyer.pay("pays").await;
    buyer.until_there("#waiting").await;
    house.server.kill9();
    buyer.until_says("Waiting for the connection to come back").await;
    house.come_back();
    buyer.until_there("#done").await;
    assert_eq!(house.seats("gala").await, (79, 0, 1));
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_payment_that_began_without_an_answer_is_called_off_and_the_seats_stay() {
    let house = House::open();
    house.sell("gala", 0, rules(300)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.take(&["A-1-1"]).await;
    // The payment begins, and the page is gone before it hears of it.
    let begin = "const { hold_id, secret } = JSON.parse(localStorage.getItem('leasehold:cart:gala'));
        const headers = { 'content-type': 'application/json', 'hold-secret': secret };
        const body = JSON.stringify({ payment_ref: 'web-lost' });
        return (await fetch(`/v1/holds/${hold_id}/payment`, { method: 'POST', headers, body })).status;";
    assert_eq!(buyer.run(begin).await, 200);
    buyer.reload().await;
    buyer.until_there("#pay").await;
    buyer.pay("pays").await;
    buyer.until_there("#done").await;
    assert_eq!(house.seats("gala").await, (79, 0, 1));
    buyer.assert_no_complaints().await;
}
