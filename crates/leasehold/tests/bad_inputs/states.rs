//! The right request at the wrong time: kind 21, and the cap of kind 10.

use std::time::Duration;

use leasehold_api::{Code, CreateEvent, PolicySpec, SeatSpec};
use leasehold_testkit::{Answer, Granted};

use crate::venue::Venue;

fn assert_refused(answer: &Answer, code: Code) {
    assert_eq!((answer.status, answer.code().as_deref()), (code.status(), Some(code.as_str())), "{answer:?}");
    assert!(answer.header("content-type").is_some_and(|found| found.starts_with("application/problem+json")));
}

async fn wait_until_expired(venue: &mut Venue, hold: &Granted) {
    for _ in 0..500 {
        if venue.desk.show_hold(hold).await.state == "expired" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("hold {} does not expire", hold.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_hold_can_neither_be_extended_nor_confirmed_nor_paid_for() {
    let mut venue = Venue::open().await;
    let hold = venue.desk.granted("gala", "A-3", 1_000).await;
    wait_until_expired(&mut venue, &hold).await;
    let before = venue.state();
    assert_refused(&venue.desk.confirm(&hold, None).await, Code::HoldExpired);
    assert_refused(&venue.desk.extend(&hold, 5_000).await, Code::HoldExpired);
    assert_refused(&venue.desk.begin_payment(&hold, "pay-1", 5_000).await, Code::HoldExpired);
    assert_eq!(venue.state(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_hold_can_neither_be_confirmed_again_nor_released() {
    let mut venue = Venue::open().await;
    let hold = venue.desk.granted("gala", "A-3", 60_000).await;
    venue.desk.sold(&hold, Some("pay-1")).await;
    // That a second payment must be given back is noted, so this refusal is an entry in the log.
    assert_refused(&venue.desk.confirm(&hold, Some("pay-2")).await, Code::RefundDue);
    let before = venue.state();
    assert_refused(&venue.desk.confirm(&hold, Some("pay-2")).await, Code::RefundDue);
    assert_refused(&venue.desk.confirm(&hold, None).await, Code::HoldState);
    assert_refused(&venue.desk.release(&hold).await, Code::HoldState);
    assert_eq!(venue.state(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_hold_cannot_be_extended() {
    let mut venue = Venue::open().await;
    let hold = venue.desk.granted("gala", "A-3", 60_000).await;
    assert!(venue.desk.release(&hold).await.is_success());
    let before = venue.state();
    assert_refused(&venue.desk.extend(&hold, 5_000).await, Code::HoldExpired);
    assert_refused(&venue.desk.confirm(&hold, None).await, Code::HoldExpired);
    assert_eq!(venue.state(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_past_the_cap_is_refused() {
    let mut venue = Venue::open().await;
    let policy = PolicySpec { extends_max: Some(1), ..PolicySpec::default() };
    let event = CreateEvent {
        id: "capped".to_owned(),
        seats: vec![SeatSpec::Id("A-1".to_owned())],
        policy: Some(policy),
        ..CreateEvent::default()
    };
    venue.desk.create_event(&event).await;
    let hold = venue.desk.granted("capped", "A-1", 10_000).await;
    assert!(venue.desk.extend(&hold, 20_000).await.is_success());
    let ends = venue.desk.show_hold(&hold).await.expires_at;
    assert_refused(&venue.desk.extend(&hold, 30_000).await, Code::ExtendCap);
    assert_eq!(venue.desk.show_hold(&hold).await.expires_at, ends);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_reference_belongs_to_one_hold() {
    let mut venue = Venue::open().await;
    let first = venue.desk.granted("gala", "A-3", 60_000).await;
    let second = venue.desk.granted("gala", "A-4", 60_000).await;
    assert!(venue.desk.begin_payment(&first, "pay-1", 60_000).await.is_success());
    let before = venue.state();
    assert_refused(&venue.desk.begin_payment(&second, "pay-1", 60_000).await, Code::PaymentRefUsed);
    assert_eq!(venue.state(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_exists_is_not_created_again() {
    let venue = Venue::open().await;
    let bad = venue.bad("POST", "/v1/events", r#"{"id":"gala","seats":["B-1"]}"#, "exists");
    venue.assert_refused(&bad, &[Code::EventExists]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capacity_does_not_fall_below_what_is_in_use() {
    let mut venue = Venue::open().await;
    let items = vec![leasehold_api::ItemSpec::pool("floor", 5)];
    assert_eq!(venue.desk.hold("gala", items, 600_000).await.status, 201);
    let body = r#"{"pools":[{"id":"floor","capacity":4}]}"#;
    venue.assert_refused(&venue.bad("PATCH", "/v1/events/gala", body, "too small"), &[Code::CapacityInUse]);
}
