//! What was answered stays, also when the engine that answered is gone.

use leasehold_core::*;
use leasehold_engine::*;

use super::*;

/// A hold outlives the engine, and a seat's fences grow over engines.
pub async fn what_was_answered_is_there_after_a_restart_and_fences_go_on_growing(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 3).await;
    let first = held(engine.execute(hold_seat(&venue, 0, LONG_MS)).await);
    engine.execute(release(&*engine, first.id)).await.unwrap();
    let second = held(engine.execute(hold_seat(&venue, 0, LONG_MS)).await);

    let engine = restart(store, engine).await;
    let venue = engine.venue("gala").await.unwrap().expect("the event is there");
    let again = held(engine.hold(second.id, Some(engine.secret_of(second.id))).await);
    assert_eq!(again, second);
    let refused = engine.execute(hold_seat(&venue, 0, LONG_MS)).await;
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::SeatsTaken(_)))), "{refused:?}");
    engine.execute(release(&*engine, second.id)).await.unwrap();
    let third = held(engine.execute(hold_seat(&venue, 0, LONG_MS)).await);
    assert!(fence(&first.items) < fence(&second.items), "{first:?} {second:?}");
    assert!(fence(&second.items) < fence(&third.items), "{second:?} {third:?}");
    engine.close().await;
}

/// A sale outlives the engine, asked again it is the same, and its cancelling frees the seat with a higher fence.
pub async fn a_sale_is_there_after_a_restart_and_its_seat_is_sold_once(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 1).await;
    let hold = held(engine.execute(hold_seat(&venue, 0, LONG_MS)).await);
    let Outcome::Booking(sold) =
        engine.execute(confirm(&*engine, hold.id, Some("pay-1"))).await.unwrap().outcome
    else {
        panic!("a sale")
    };

    let engine = restart(store, engine).await;
    let again = engine.execute(confirm(&*engine, hold.id, Some("pay-1"))).await.unwrap().outcome;
    assert_eq!(again, Outcome::Booking(sold.clone()), "the same payment gets the same answer");
    assert_eq!(engine.booking(sold.id).await.unwrap().outcome, Outcome::Booking(sold.clone()));
    let refused = engine.execute(hold_seat(&venue, 0, LONG_MS)).await;
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::SeatsTaken(_)))), "{refused:?}");
    let cancel = Command::CancelBooking(CancelBooking { booking: sold.id });
    engine.execute(Request::new(cancel)).await.unwrap();
    let undone = engine.execute(confirm(&*engine, hold.id, Some("pay-1"))).await;
    assert!(
        matches!(undone, Err(EngineError::Refused(Refusal::SaleCancelled(id))) if id == sold.id),
        "{undone:?}"
    );
    let next = held(engine.execute(hold_seat(&venue, 0, LONG_MS)).await);
    assert!(fence(&sold.items) < fence(&next.items));
    let counts = engine.event(&venue).await.unwrap().counts;
    assert_eq!((counts.held, counts.sold), (1, 0));
    engine.close().await;
}
