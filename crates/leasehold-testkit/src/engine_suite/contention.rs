//! Many want the same: each thing goes to one of them.

use leasehold_core::*;
use leasehold_engine::*;

use super::*;

/// Sixty-four callers, three seats, ten units: three seats and ten units are sold, and everybody has an answer.
pub async fn three_seats_and_a_pool_are_sold_exactly_once_to_many_callers(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 3).await;
    let callers = (0..64_u32).map(|caller| {
        let (engine, venue) = (Arc::clone(&engine), Arc::clone(&venue));
        tokio::spawn(async move {
            let (mut seats, mut units) = (0, 0);
            for turn in 0..12 {
                let request = match turn % 2 {
                    0 => hold_seat(&venue, (caller + turn) % 3, LONG_MS),
                    _ => hold_units(&venue, 1, LONG_MS),
                };
                match engine.execute(request).await {
                    Ok(done) => {
                        let Outcome::Hold(hold) = done.outcome else { panic!("a hold") };
                        // Half of the holds are given back, so that the same seat goes from hand to hand.
                        if turn < 6 {
                            engine.execute(release(&*engine, hold.id)).await.unwrap();
                        } else {
                            engine.execute(confirm(&*engine, hold.id, None)).await.unwrap();
                            if turn % 2 == 0 { seats += 1 } else { units += 1 }
                        }
                    }
                    Err(EngineError::Refused(Refusal::SeatsTaken(_) | Refusal::PoolShort { .. })) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
            (seats, units)
        })
    });
    let (mut seats, mut units) = (0, 0);
    for caller in callers.collect::<Vec<_>>() {
        let (more_seats, more_units) = caller.await.unwrap();
        seats += more_seats;
        units += more_units;
    }
    let summary = engine.event(&venue).await.unwrap();
    assert_eq!((seats, units), (3, 10));
    assert_eq!((summary.counts.sold, summary.pools[0].sold), (3, 10));
    assert_eq!((summary.counts.held, summary.pools[0].held), (0, 0));
    engine.close().await;
}

/// Pairs until nothing is left: each pair is together in its row, and "sold out" is only said when it is so.
pub async fn best_seats_are_together_and_the_last_ones_are_found(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 4, 10).await;
    let callers = (0..8).map(|_| {
        let (engine, venue) = (Arc::clone(&engine), Arc::clone(&venue));
        tokio::spawn(async move {
            let mut pairs = Vec::new();
            loop {
                let best = vec![ItemRequest::Best { count: 2, section: None }];
                match engine.execute(hold_items(&venue, best, LONG_MS)).await {
                    Ok(done) => {
                        let Outcome::Hold(hold) = done.outcome else { panic!("a hold") };
                        let seats = hold.items.iter().map(|item| match item {
                            Item::Seat { seat, .. } => seat.0,
                            Item::Pool { .. } => panic!("a seat was asked for"),
                        });
                        pairs.push(seats.collect::<Vec<_>>());
                    }
                    Err(EngineError::Refused(Refusal::NotTogether { .. })) => return pairs,
                    Err(other) => panic!("{other:?}"),
                }
            }
        })
    });
    let mut pairs = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        pairs.extend(caller.await.unwrap());
    }
    for pair in &pairs {
        assert_eq!(pair.len(), 2);
        assert_eq!(pair[1], pair[0] + 1, "next to each other");
        assert_eq!(pair[0] / 10, pair[1] / 10, "in one row");
    }
    let mut seats: Vec<u32> = pairs.into_iter().flatten().collect();
    seats.sort_unstable();
    assert_eq!(seats, (0..40).collect::<Vec<_>>(), "everything went, and only once");
    engine.close().await;
}

/// The limit holds for many requests at once.
pub async fn a_holder_never_has_more_than_the_event_allows(store: &dyn EngineStore) {
    let engine = store.open().await;
    let policy = Policy { units_per_holder_max: 4, ..Policy::default() };
    let venue = create_event_with(&*engine, "gala", 1, 20, policy).await;
    let ask = |seat| {
        let mut request = hold_seat(&venue, seat, LONG_MS);
        if let Command::CreateHold(create) = &mut request.command {
            create.holder = Some(reference("ada"));
        }
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { engine.execute(request).await })
    };
    let mut granted = Vec::new();
    for task in (0..20).map(ask).collect::<Vec<_>>() {
        match task.await.unwrap() {
            Err(EngineError::Refused(Refusal::HolderLimit { .. })) => {}
            other => granted.push(held(other)),
        }
    }
    assert_eq!(granted.len(), 4);
    engine.execute(confirm(&*engine, granted[0].id, None)).await.unwrap();
    engine.execute(release(&*engine, granted[1].id)).await.unwrap();
    let free = granted.iter().map(|hold| hold.items[0]).collect::<Vec<_>>();
    let Item::Seat { seat, .. } = free[1] else { panic!("a seat") };
    held(ask(seat.0).await.unwrap());
    let unused = (0..20).find(|seat| {
        free.iter().all(|item| !matches!(item, Item::Seat { seat: used, .. } if used.0 == *seat))
    });
    let refused = ask(unused.expect("twenty seats")).await.unwrap();
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::HolderLimit { .. }))), "{refused:?}");
    engine.close().await;
}
