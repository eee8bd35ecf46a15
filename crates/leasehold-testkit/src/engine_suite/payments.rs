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

/// One too many is refused, and whichever way a payment ends, its place is free at once, also after a restart.
pub async fn no_more_payments_are_in_progress_than_the_event_allows(store: &dyn EngineStore) {
    let engine = store.open().await;
    let policy = Policy { payments_in_flight_max: 2, ..Policy::default() };
    let venue = create_event_with(&*engine, "gala", 1, 8, policy).await;
    let mut holds = Vec::new();
    for seat in 0..8 {
        holds.push(held(engine.execute(hold_seat(&venue, seat, LONG_MS)).await).id);
    }
    let begin = |engine: &dyn Engine, place: usize, max_wait: Option<Millis>| {
        let begin =
            BeginPayment { hold: holds[place], reference: reference(&format!("pay-{place}")), max_wait };
        by_owner(engine, holds[place], Command::BeginPayment(begin))
    };
    let is_busy = |answer: Result<Done, EngineError>| match answer {
        Err(EngineError::Refused(Refusal::PaymentsBusy)) => true,
        Ok(_) => false,
        other => panic!("{other:?}"),
    };
    for place in [0, 1] {
        held(engine.execute(begin(&*engine, place, None)).await);
    }
    assert!(is_busy(engine.execute(begin(&*engine, 2, None)).await));
    held(engine.execute(begin(&*engine, 1, None)).await);
    let engine = restart(store, engine).await;
    assert!(is_busy(engine.execute(begin(&*engine, 2, None)).await), "also after a restart");
    // Sold, and the next one has three seconds to be paid.
    engine.execute(confirm(&*engine, holds[0], Some("pay-0"))).await.unwrap();
    held(engine.execute(begin(&*engine, 2, Some(Millis(3_000)))).await);
    assert!(is_busy(engine.execute(begin(&*engine, 3, None)).await), "sold frees one place and no more");
    // Declined.
    let failed = Command::PaymentFailed(holds[1], reference("pay-1"));
    engine.execute(by_owner(&*engine, holds[1], failed)).await.unwrap();
    held(engine.execute(begin(&*engine, 3, None)).await);
    // Too late; nobody need have noticed.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while is_busy(engine.execute(begin(&*engine, 4, None)).await) {
        assert!(tokio::time::Instant::now() < deadline, "the place of a late payment is never free");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Taken away.
    assert!(is_busy(engine.execute(begin(&*engine, 5, None)).await));
    engine.execute(Request::new(Command::RevokeHold(holds[3], None))).await.unwrap();
    held(engine.execute(begin(&*engine, 5, None)).await);
    // A sale whose payment was never begun needs no place. A higher limit gives some; none lets everybody pay.
    engine.execute(confirm(&*engine, holds[6], Some("pay-6"))).await.unwrap();
    assert!(is_busy(engine.execute(begin(&*engine, 7, None)).await));
    let patch = PolicyPatch { payments_in_flight_max: Some(0), ..PolicyPatch::default() };
    let patch = EventPatch { policy: Some(patch), ..EventPatch::default() };
    let update = Command::UpdateEvent(UpdateEvent { event: venue.number, patch });
    engine.execute(Request::new(update)).await.unwrap();
    held(engine.execute(begin(&*engine, 7, None)).await);
    engine.close().await;
}
