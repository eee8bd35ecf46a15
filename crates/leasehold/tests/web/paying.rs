//! Payments that do not go well: declined, slow, silent, too late.

use leasehold_api::{ItemSpec, PolicySpec};
use leasehold_testkit::Screen;

use crate::house::{House, rules};

#[tokio::test]
async fn a_declined_payment_leaves_the_seats_and_another_card_buys_them() {
    let house = House::open();
    house.sell("gala", 0, rules(120)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.take(&["A-1-1"]).await;
    buyer.pay("declines").await;
    buyer.until_says("The payment was declined").await;
    assert_eq!(house.seats("gala").await, (79, 1, 0));
    assert!(buyer.countdown().await > 50, "at least a minute, less a margin");
    buyer.pay("pays").await;
    buyer.until_there("#done").await;
    assert_eq!(house.seats("gala").await, (79, 0, 1));
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn whoever_chooses_how_to_pay_is_warned_before_the_hold_ends() {
    let house = House::open();
    house.sell("gala", 0, rules(15)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.take(&["A-1-1"]).await;
    buyer.click("#pay").await;
    buyer.until_there("#pay-now").await;
    buyer
        .until("document.getElementById('speech').textContent.includes('left to pay for your tickets')")
        .await;
    buyer.until_there("#pay-now").await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_slow_payment_outlives_the_holds_own_time_and_a_reload() {
    let house = House::open();
    house.sell("gala", 0, rules(10)).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.take(&["A-1-1"]).await;
    buyer.pay("slow").await;
    buyer.until_there("#waiting").await;
    // The hold had ten seconds; the bank takes twelve. The page is even loaded again in between.
    buyer.reload().await;
    buyer.until_there("#waiting").await;
    assert!(buyer.countdown().await > 60, "the payment's deadline counts, not the hold's");
    buyer.until_there("#done").await;
    assert_eq!(house.seats("gala").await, (79, 0, 1));
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_payment_that_never_returns_ends_at_its_deadline_and_the_seats_can_be_had_again() {
    let house = House::open();
    house.sell("gala", 0, PolicySpec { payment_max_ms: Some(4_000), ..rules(60) }).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.take(&["A-1-1"]).await;
    buyer.pay("silent").await;
    buyer.until_says("The bank never answered").await;
    buyer.until_sees("A-1-1", "free").await;
    buyer.click(".offers button").await;
    buyer.until_there("#countdown").await;
    assert_eq!(house.seats("gala").await, (79, 1, 0));
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_payment_after_its_deadline_is_still_a_sale_when_everything_is_free() {
    let house = House::open();
    house.sell("gala", 0, PolicySpec { payment_max_ms: Some(3_000), ..rules(60) }).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.take(&["A-1-1"]).await;
    buyer.pay("slow").await;
    buyer.until_sees("A-1-1", "free").await;
    // Meanwhile the page does not call a seat the buyer's that anybody can take.
    buyer.until_says("The payment’s time is over and the seats are on sale again").await;
    buyer.until("document.getElementById('map').getAttribute('mine') === ''").await;
    buyer.until_there("#done").await;
    buyer.until_says("The payment came late, and everything was still free.").await;
    assert_eq!(house.seats("gala").await, (79, 0, 1));
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn a_payment_that_is_too_late_is_given_back_and_the_page_says_so() {
    let house = House::open();
    house.sell("gala", 0, PolicySpec { payment_max_ms: Some(3_000), ..rules(60) }).await;
    let mut buyer = house.visitor("gala", Screen::DESKTOP).await;
    buyer.expect_in_log("status of 409");
    buyer.take(&["A-1-1"]).await;
    buyer.pay("slow").await;
    // The hold expires under the payment, and somebody else is faster.
    buyer.until_sees("A-1-1", "free").await;
    house.hold("gala", ItemSpec::seat("A-1-1"), "somebody").await;
    buyer.until_says("The payment came too late").await;
    buyer.until_says("You will get your money back").await;
    assert_eq!(house.seats("gala").await, (79, 1, 0));
    let refunds =
        house.client().send(leasehold_client::Request::get("/v1/events/gala/refunds")).await.unwrap();
    let refunds: leasehold_api::RefundList = refunds.json().unwrap();
    assert_eq!(refunds.refunds.len(), 1, "and the operator is told");
    buyer.assert_no_complaints().await;
}
