//! Money: nothing is sold twice, and nothing that was paid is forgotten.

use leasehold_core::*;
use leasehold_engine::*;

use super::*;

/// A payment that came too late is answered the same way for ever, and is listed.
pub async fn a_refund_that_is_due_is_remembered(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 1).await;
    let late = held(engine.execute(hold_seat(&venue, 0, LONG_MS)).await);
    engine.execute(release(&*engine, late.id)).await.unwrap();
    engine.execute(hold_seat(&venue, 0, LONG_MS)).await.unwrap();
    let due = engine.execute(confirm(&*engine, late.id, Some("pay-1"))).await.unwrap().outcome;
    assert_eq!(due, Outcome::RefundDue(reference("pay-1")));

    let engine = restart(store, engine).await;
    let again = engine.execute(confirm(&*engine, late.id, Some("pay-1"))).await.unwrap().outcome;
    assert_eq!(again, due, "it has to do with money");
    let page = engine.refunds(&venue, 0, 10).await.unwrap();
    let [(_, refunds)] = &page.items[..] else { panic!("one hold: {page:?}") };
    assert_eq!((refunds.hold, &refunds.payments[..]), (late.id, &[reference("pay-1")][..]));
    engine.close().await;
}

/// Late, and sold all the same.
pub async fn a_late_payment_brings_the_hold_back_if_everything_is_free(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 2).await;
    let items = vec![ItemRequest::Seat(SeatNo(1)), ItemRequest::Pool(PoolNo(0), 3)];
    let late = held(engine.execute(hold_items(&venue, items, LONG_MS)).await);
    engine.execute(release(&*engine, late.id)).await.unwrap();
    let outcome = engine.execute(confirm(&*engine, late.id, Some("pay-1"))).await.unwrap().outcome;
    let Outcome::Booking(booking) = outcome else { panic!("{outcome:?}") };
    assert!(booking.revived);
    let summary = engine.event(&venue).await.unwrap();
    assert_eq!((summary.counts.sold, summary.pools[0].sold, summary.pools[0].held), (1, 3, 0));
    let other = engine.execute(confirm(&*engine, late.id, Some("pay-2"))).await.unwrap().outcome;
    assert_eq!(other, Outcome::RefundDue(reference("pay-2")), "a second payment is given back");
    engine.close().await;
}

/// The hold's time stands still while the buyer pays, and goes on when that failed.
pub async fn a_payment_in_progress_keeps_the_hold_and_its_failure_gives_time(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 1).await;
    let hold = held(engine.execute(hold_seat(&venue, 0, 1_500)).await);
    let begin = |payment: &str| {
        let begin = BeginPayment { hold: hold.id, reference: reference(payment), max_wait: None };
        by_owner(&*engine, hold.id, Command::BeginPayment(begin))
    };
    let paying = held(engine.execute(begin("pay-1")).await);
    assert_eq!(paying.state, HoldState::Confirming);
    tokio::time::sleep(std::time::Duration::from_millis(2_000)).await;
    let refused = engine.execute(hold_seat(&venue, 0, LONG_MS)).await;
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::SeatsTaken(_)))), "{refused:?}");
    let failed = Command::PaymentFailed(hold.id, reference("pay-1"));
    let back = held(engine.execute(by_owner(&*engine, hold.id, failed)).await);
    assert_eq!(back.state, HoldState::Held);
    assert!(back.expires_at.since(engine.now()) > Millis(30_000), "time for another try");
    held(engine.execute(begin("pay-2")).await);
    let outcome = engine.execute(confirm(&*engine, hold.id, Some("pay-2"))).await.unwrap().outcome;
    assert!(matches!(outcome, Outcome::Booking(_)), "{outcome:?}");
    engine.close().await;
}
