//! A hold is over when its time is over, whoever notices first.

use std::time::Duration;

use leasehold_core::*;
use leasehold_engine::*;

use super::*;
use crate::Lateness;

/// Nobody asks, and the seat is free all the same: never early, and late only by as much as the machine was. A disk that
/// stands still is late too, which it is not most of the time.
pub async fn expired_holds_come_back_on_their_own_within_a_second(store: &dyn EngineStore) {
    const ROUNDS: usize = 3;
    const IN_TIME_MIN: usize = 2;
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 2).await;
    let mut late = Vec::new();
    for round in 1..=ROUNDS {
        let machine = Lateness::watch();
        let took = time_until_it_comes_back(&*engine, &venue).await;
        if Duration::from_millis(took.0) > Duration::from_secs(1) + machine.worst() {
            late.push((took, machine.worst()));
        }
        assert!(late.len() <= ROUNDS - IN_TIME_MIN, "late, and the machine's part in it: {late:?}");
        if round - late.len() == IN_TIME_MIN {
            break;
        }
    }
    engine.close().await;
}

/// How long after its end a hold is ended.
async fn time_until_it_comes_back(engine: &dyn Engine, venue: &Arc<Venue>) -> Millis {
    let mut stream = engine.subscribe(venue, Since::Nothing).await.unwrap();
    let hold = held(engine.execute(hold_seat(venue, 0, 1_000)).await);
    let expired = tokio::time::timeout(PATIENCE, async {
        loop {
            if let StreamStep::Changes(changes) = stream.next().await
                && let Some(change) = changes.into_iter().find(|change| change.kind == Kind::HoldExpired)
            {
                return change;
            }
        }
    });
    let change = expired.await.expect("it is ended by somebody");
    assert!(change.at >= hold.expires_at, "never early");
    assert_eq!(engine.event(venue).await.unwrap().counts.free, 2);
    let over = held(engine.hold(hold.id, Some(engine.secret_of(hold.id))).await);
    assert_eq!((over.state, over.ended_at), (HoldState::Expired, hold.expires_at));
    change.at.since(hold.expires_at)
}

/// The taker of one seat frees the others too, and the late owner is told.
pub async fn taking_a_seat_of_a_hold_that_is_over_ends_the_whole_hold(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 3).await;
    let seats = |numbers: &[u32]| numbers.iter().map(|&seat| ItemRequest::Seat(SeatNo(seat))).collect();
    let late = held(engine.execute(hold_items(&venue, seats(&[0, 1, 2]), 1_000)).await);
    let begun = tokio::time::Instant::now();
    let next = loop {
        match engine.execute(hold_seat(&venue, 1, LONG_MS)).await {
            Err(EngineError::Refused(Refusal::SeatsTaken(_))) if begun.elapsed() < PATIENCE => {}
            other => break held(other),
        }
    };
    assert!(next.created_at >= late.expires_at, "never early");
    let counts = engine.event(&venue).await.unwrap().counts;
    assert_eq!((counts.free, counts.held), (2, 1), "the whole hold was ended");
    let refused = engine.execute(confirm(&*engine, late.id, None)).await;
    assert!(
        matches!(refused, Err(EngineError::Refused(Refusal::HoldOver(HoldState::Expired)))),
        "{refused:?}"
    );
    engine.close().await;
}

/// Units and seats of holds that are over are there for the next caller, at that very instant.
pub async fn what_holds_that_are_over_had_is_never_sold_out(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 2).await;
    let mut until = Timestamp::default();
    for _ in 0..10 {
        until = until.max(held(engine.execute(hold_units(&venue, 1, 1_000)).await).expires_at);
    }
    let begun = tokio::time::Instant::now();
    loop {
        let asked_at = engine.now();
        match engine.execute(hold_units(&venue, 10, LONG_MS)).await {
            Err(EngineError::Refused(Refusal::PoolShort { .. })) => {
                assert!(begun.elapsed() < PATIENCE, "asked at {asked_at}, over at {until}");
            }
            other => {
                assert!(held(other).created_at >= until, "never early");
                break;
            }
        }
    }
    engine.close().await;
}
