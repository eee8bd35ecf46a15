//! Readers see every change once, in order, without a gap.

use leasehold_core::*;
use leasehold_engine::*;

use super::*;

/// A reader goes on where it was, also on another engine.
pub async fn a_reader_that_comes_back_misses_nothing_also_over_a_restart(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 100).await;
    let seen = engine.event(&venue).await.unwrap().version;
    for seat in 0..50 {
        engine.execute(hold_seat(&venue, seat, LONG_MS)).await.unwrap();
    }
    let engine = restart(store, engine).await;
    for seat in 50..100 {
        engine.execute(hold_seat(&venue, seat, LONG_MS)).await.unwrap();
    }
    let mut stream = engine.subscribe(&venue, Since::Version(seen)).await.unwrap();
    let mut versions = Vec::new();
    while versions.len() < 100 {
        match tokio::time::timeout(PATIENCE, stream.next()).await.expect("a step") {
            StreamStep::Changes(changes) => {
                versions.extend(changes.iter().map(|change| change.version.number))
            }
            other => panic!("{other:?}"),
        }
    }
    let expected: Vec<u64> = (seen.number + 1..=seen.number + 100).collect();
    assert_eq!(versions, expected);

    let Availability::Changes { seats, summary } =
        engine.availability(&venue, Since::Version(seen)).await.unwrap()
    else {
        panic!("a delta was asked for")
    };
    assert_eq!(seats.len(), 100);
    assert_eq!(summary.counts.held, 100);
    engine.close().await;
}

/// A version that this store never had is answered with everything.
pub async fn a_reader_of_another_epoch_is_told_to_start_anew(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 1).await;
    for version in [Version { epoch: Epoch(9), number: 1 }, Version { epoch: Epoch::FIRST, number: 1_000 }] {
        let mut stream = engine.subscribe(&venue, Since::Version(version)).await.unwrap();
        let step = tokio::time::timeout(PATIENCE, stream.next()).await.expect("a step");
        assert!(matches!(step, StreamStep::Reset(_)), "{step:?}");
        let full = engine.availability(&venue, Since::Version(version)).await.unwrap();
        assert!(matches!(full, Availability::Full(_)));
    }
    engine.close().await;
}

/// The answer comes after the readers know, and the end of a stream after its last change.
pub async fn whoever_has_an_answer_sees_its_effect_and_a_stream_ends_after_its_last_change(
    store: &dyn EngineStore,
) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 200).await;
    let mut stream = engine.subscribe(&venue, Since::Nothing).await.unwrap();
    for seat in 0..200 {
        engine.execute(hold_seat(&venue, seat, LONG_MS)).await.unwrap();
        assert_eq!(engine.event(&venue).await.unwrap().counts.held, seat + 1);
    }
    engine.close().await;
    let mut changes = 0;
    while let StreamStep::Changes(more) =
        tokio::time::timeout(PATIENCE, stream.next()).await.expect("a stream ends")
    {
        changes += more.len();
    }
    assert_eq!(changes, 200);
}

/// All changes laid over the beginning give what a new engine reads from the store.
pub async fn what_changed_adds_up_to_what_is_there(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 2, 6).await;
    let Availability::Full(start) = engine.availability(&venue, Since::Nothing).await.unwrap() else {
        panic!("everything was asked for")
    };
    let mut holds = Vec::new();
    for seat in 0..6 {
        let items = vec![ItemRequest::Seat(SeatNo(seat)), ItemRequest::Pool(PoolNo(0), 1)];
        holds.push(held(engine.execute(hold_items(&venue, items, LONG_MS)).await));
    }
    engine.execute(confirm(&*engine, holds[0].id, None)).await.unwrap();
    engine.execute(release(&*engine, holds[1].id)).await.unwrap();
    let amend = AmendHold {
        hold: holds[2].id,
        extend: None,
        add: vec![ItemRequest::Best { count: 2, section: None }],
        remove: vec![ItemRequest::Pool(PoolNo(0), 1)],
        version: Some(1),
    };
    engine.execute(by_owner(&*engine, holds[2].id, Command::AmendHold(amend))).await.unwrap();
    engine.execute(Request::new(Command::RevokeHold(holds[3].id, None))).await.unwrap();
    let since = start.summary.version;
    let mut stream = engine.subscribe(&venue, Since::Version(since)).await.unwrap();
    let (mut seats, mut pools) = (start.seats.clone(), start.summary.pools.clone());
    let last = engine.event(&venue).await.unwrap().version;
    let mut version = since.number;
    while version < last.number {
        let step = tokio::time::timeout(PATIENCE, stream.next()).await.expect("a step");
        let StreamStep::Changes(changes) = step else { panic!("{step:?}") };
        for change in changes {
            assert_eq!(change.version.number, version + 1, "no gap");
            version += 1;
            change.seats.iter().for_each(|update| seats[update.seat.0 as usize] = update.status);
            change.pools.iter().for_each(|(pool, counts)| pools[pool.0 as usize] = *counts);
        }
    }

    let engine = restart(store, engine).await;
    let Availability::Full(end) = engine.availability(&venue, Since::Nothing).await.unwrap() else {
        panic!("everything was asked for")
    };
    assert_eq!(end.summary.version, last);
    assert_eq!((end.seats.clone(), end.summary.pools.clone()), (seats, pools));
    engine.close().await;
}
