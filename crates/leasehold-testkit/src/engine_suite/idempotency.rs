//! One key, one effect, one answer; and a hold is its owner's.

use leasehold_core::*;
use leasehold_engine::*;

use super::*;

/// A repetition has no effect and gets the first answer, also from another engine.
pub async fn the_same_key_has_one_effect_and_one_answer(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 1).await;
    let first = engine.execute(hold_units(&venue, 2, LONG_MS).with_key(key(1, 1))).await.unwrap();
    let again = engine.execute(hold_units(&venue, 2, LONG_MS).with_key(key(1, 1))).await.unwrap();
    assert!(!first.replayed && again.replayed);
    assert_eq!((&first.outcome, first.at), (&again.outcome, again.at));
    let other = engine.execute(hold_units(&venue, 3, LONG_MS).with_key(key(1, 2))).await;
    assert!(matches!(other, Err(EngineError::KeyMismatch)), "{other:?}");

    let engine = restart(store, engine).await;
    let later = engine.execute(hold_units(&venue, 2, LONG_MS).with_key(key(1, 1))).await.unwrap();
    assert!(later.replayed);
    assert_eq!((&later.outcome, later.at), (&first.outcome, first.at));
    assert_eq!(engine.event(&venue).await.unwrap().pools[0].held, 2);
    engine.close().await;
}

/// Of a hold's id under a key most bits are the key's. Should two keys make one id, of one event or of two, then the second hold is
/// refused, and nobody else notices anything.
pub async fn two_keys_that_make_one_id_harm_nobody(store: &dyn EngineStore) {
    let engine = store.open().await;
    let one = create_event_with(&*engine, "one", 1, 12, Policy::default()).await;
    let venues = [one, create_event_with(&*engine, "other", 1, 12, Policy::default()).await];
    let id = new_hold_id();
    let ask = |event: usize, seat: u32, scope: u128| {
        let mut request = hold_seat(&venues[event], seat, LONG_MS);
        if let (Command::CreateHold(create), true) = (&mut request.command, scope > 0) {
            create.id = id;
        }
        let key = (scope > 0).then_some(IdempotencyKey { scope: scope << 64 | 1, fingerprint: scope });
        let (engine, request) = (Arc::clone(&engine), request.with_key(key));
        tokio::spawn(async move { engine.execute(request).await })
    };
    // At the same time, among others, and once more when it is there.
    let asked: Vec<_> = (0..8)
        .map(|number| (number as usize % 2, number, if number < 4 { u128::from(number + 1) } else { 0 }))
        .map(|(event, seat, scope)| (event, scope, ask(event, seat, scope)))
        .collect();
    let (mut held, mut refused) = ([0; 2], 0);
    for (event, scope, asking) in asked {
        match asking.await.unwrap() {
            Ok(_) => held[event] += 1,
            Err(EngineError::Refused(Refusal::Invalid(_))) if scope > 0 => refused += 1,
            Err(other) => panic!("event {event}, key {scope}: {other:?}"),
        }
    }
    assert_eq!((held[0] + held[1], refused), (5, 3));
    for event in [0, 1] {
        let again = ask(event, 10, 100 + event as u128).await.unwrap();
        assert!(matches!(again, Err(EngineError::Refused(Refusal::Invalid(_)))), "{again:?}");
        ask(event, 11, 0).await.unwrap().expect("it is free");
        assert_eq!(engine.event(&venues[event]).await.unwrap().counts.held, held[event] + 1);
    }
    engine.close().await;
}

/// What was refused may be asked again under the same key.
pub async fn a_refusal_is_not_remembered(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 1).await;
    let winner = held(engine.execute(hold_seat(&venue, 0, LONG_MS)).await);
    let refused = engine.execute(hold_seat(&venue, 0, LONG_MS).with_key(key(7, 7))).await;
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::SeatsTaken(_)))), "{refused:?}");
    engine.execute(release(&*engine, winner.id)).await.unwrap();
    let granted = engine.execute(hold_seat(&venue, 0, LONG_MS).with_key(key(7, 7))).await;
    assert!(!granted.expect("it is free").replayed);
    engine.close().await;
}

/// What changed nothing when it was asked changes nothing when it is asked again, although by then it would.
pub async fn a_success_that_changed_nothing_is_remembered(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 3).await;
    let hold = held(engine.execute(hold_seat(&venue, 0, LONG_MS)).await);
    let begin = |engine: &dyn Engine| {
        let begin = BeginPayment { hold: hold.id, reference: reference("pay-1"), max_wait: None };
        by_owner(engine, hold.id, Command::BeginPayment(begin))
    };
    let decline =
        |engine: &dyn Engine| by_owner(engine, hold.id, Command::PaymentFailed(hold.id, reference("pay-1")));
    held(engine.execute(begin(&*engine)).await);
    let begun = engine.execute(begin(&*engine).with_key(key(1, 1))).await.unwrap();
    held(engine.execute(decline(&*engine)).await);
    let declined = engine.execute(decline(&*engine).with_key(key(2, 2))).await.unwrap();

    let again = engine.execute(begin(&*engine).with_key(key(1, 1))).await.unwrap();
    assert_eq!((&again.outcome, again.at, again.replayed), (&begun.outcome, begun.at, true));
    let seen = held(engine.hold(hold.id, Some(engine.secret_of(hold.id))).await);
    assert_eq!(seen.state, HoldState::Held, "nobody pays");
    held(engine.execute(begin(&*engine)).await);
    let engine = restart(store, engine).await;
    let again = engine.execute(decline(&*engine).with_key(key(2, 2))).await.unwrap();
    assert_eq!((&again.outcome, again.at, again.replayed), (&declined.outcome, declined.at, true));
    let seen = held(engine.hold(hold.id, Some(engine.secret_of(hold.id))).await);
    assert_eq!(seen.state, HoldState::Confirming, "the money is on its way");

    let sold = engine.execute(confirm(&*engine, hold.id, Some("pay-1"))).await.unwrap();
    let Outcome::Booking(booking) = sold.outcome else { panic!("{:?}", sold.outcome) };
    let told = engine.execute(confirm(&*engine, hold.id, Some("pay-1")).with_key(key(3, 3))).await.unwrap();
    let cancel = CancelBooking { booking: booking.id };
    engine.execute(Request::new(Command::CancelBooking(cancel))).await.unwrap();
    let again = engine.execute(confirm(&*engine, hold.id, Some("pay-1")).with_key(key(3, 3))).await.unwrap();
    assert_eq!((&again.outcome, again.replayed), (&told.outcome, true), "the answer of its time");

    // A second less than it has: it is not extended now, and not a second later either.
    let hold = held(engine.execute(hold_seat(&venue, 1, LONG_MS)).await);
    let extend = || {
        let extend = Some(Millis(LONG_MS - 1_000));
        let amend = AmendHold { hold: hold.id, extend, add: vec![], remove: vec![], version: None };
        by_owner(&*engine, hold.id, Command::AmendHold(amend)).with_key(key(4, 4))
    };
    let kept = held(engine.execute(extend()).await);
    if kept.version == hold.version {
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        assert_eq!(held(engine.execute(extend()).await), kept);
    }
    engine.close().await;
}

/// The answer shows the hold as it then stood, with its fences, whatever became of it; and is found by its key.
pub async fn an_answer_is_remembered_as_it_was_given(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 3).await;
    let items = vec![
        ItemRequest::Pool(PoolNo(0), 2),
        ItemRequest::Seat(SeatNo(2)),
        ItemRequest::Seat(SeatNo(0)),
        ItemRequest::Pool(PoolNo(0), 1),
    ];
    let asked = || {
        let mut request = hold_items(&venue, items.clone(), LONG_MS).with_key(key(3, 3));
        if let Command::CreateHold(create) = &mut request.command {
            create.holder = Some(reference("ada"));
        }
        request
    };
    let first = engine.execute(asked()).await.unwrap();
    let Outcome::Hold(hold) = first.outcome.clone() else { panic!("a hold") };
    let released = engine.execute(release(&*engine, hold.id).with_key(key(4, 4))).await.unwrap();

    let engine = restart(store, engine).await;
    let again = engine.execute(asked()).await.unwrap();
    assert_eq!((&again.outcome, again.at, again.replayed), (&first.outcome, first.at, true));
    let secret = Some(engine.secret_of(hold.id));
    let remembered = engine.remembered(hold.id, secret, key(4, 4).unwrap()).await.unwrap();
    assert_eq!(remembered.expect("it was answered").outcome, released.outcome);
    assert!(engine.remembered(hold.id, secret, key(5, 5).unwrap()).await.unwrap().is_none());
    assert!(engine.remembered(hold.id, None, key(4, 4).unwrap()).await.unwrap().is_none());
    engine.close().await;
}

/// Someone else's hold is not there.
pub async fn without_the_secret_a_hold_looks_absent(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 2).await;
    let one = held(engine.execute(hold_seat(&venue, 0, LONG_MS)).await);
    let two = held(engine.execute(hold_seat(&venue, 1, LONG_MS)).await);
    for secret in [None, Some(engine.secret_of(two.id))] {
        let released = engine.execute(Request::new(Command::ReleaseHold(one.id)).with_secret(secret)).await;
        assert!(matches!(released, Err(EngineError::Refused(Refusal::NotFound))), "{released:?}");
        let seen = engine.hold(one.id, secret).await;
        assert!(matches!(seen, Err(EngineError::Refused(Refusal::NotFound))), "{seen:?}");
    }
    assert_eq!(engine.event(&venue).await.unwrap().counts.held, 2);
    engine.close().await;
}
