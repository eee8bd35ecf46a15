//! What the operator does and sees.

use leasehold_core::*;
use leasehold_engine::*;

use super::*;

/// A closed event sells nothing new; who is paying may finish.
pub async fn closing_takes_away_what_nobody_pays_for(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 4).await;
    let idle = held(engine.execute(hold_seat(&venue, 0, LONG_MS)).await);
    let paying = held(engine.execute(hold_seat(&venue, 1, LONG_MS)).await);
    let begin = BeginPayment { hold: paying.id, reference: reference("pay-1"), max_wait: None };
    engine.execute(by_owner(&*engine, paying.id, Command::BeginPayment(begin))).await.unwrap();
    let declined = held(engine.execute(hold_seat(&venue, 3, LONG_MS)).await);
    let begin = BeginPayment { hold: declined.id, reference: reference("pay-2"), max_wait: None };
    engine.execute(by_owner(&*engine, declined.id, Command::BeginPayment(begin))).await.unwrap();
    let set = |open| {
        let patch = EventPatch { open: Some(open), ..EventPatch::default() };
        Request::new(Command::UpdateEvent(UpdateEvent { event: venue.number, patch }))
    };
    let closed = engine.execute(set(false)).await.unwrap().outcome;
    let Outcome::Event(summary) = closed else { panic!("{closed:?}") };
    assert_eq!((summary.state, summary.counts.free, summary.counts.held), (EventState::Closed, 2, 2));
    assert_eq!(engine.event(&venue).await.unwrap(), summary, "the answer is what readers see");
    let seen = held(engine.hold(idle.id, Some(engine.secret_of(idle.id))).await);
    assert_eq!(seen.state, HoldState::Revoked);
    let refused = engine.execute(hold_seat(&venue, 2, LONG_MS)).await;
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::EventClosed))), "{refused:?}");
    let sold = engine.execute(confirm(&*engine, paying.id, Some("pay-1"))).await.unwrap().outcome;
    assert!(matches!(sold, Outcome::Booking(_)), "{sold:?}");
    let decline = Command::PaymentFailed(declined.id, reference("pay-2"));
    let over = held(engine.execute(by_owner(&*engine, declined.id, decline)).await);
    assert_eq!(over.state, HoldState::Revoked, "nobody pays for it any more");
    let late = engine.execute(confirm(&*engine, declined.id, None)).await;
    assert!(matches!(late, Err(EngineError::Refused(Refusal::HoldOver(HoldState::Revoked)))), "{late:?}");
    engine.execute(set(true)).await.unwrap();
    held(engine.execute(hold_seat(&venue, 2, LONG_MS)).await);
    engine.close().await;
}

/// Blocked is neither free nor held, and only for its event.
pub async fn blocked_seats_are_not_sold_and_come_back(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 3).await;
    let other = create_event_with(&*engine, "other", 1, 3, Policy::default()).await;
    let id = new_block_id();
    let items = vec![ItemRequest::Seat(SeatNo(0)), ItemRequest::Pool(PoolNo(0), 8)];
    let create = CreateBlock { event: venue.number, id, items, reason: Text::parse("Press").ok() };
    let made = engine.execute(Request::new(Command::CreateBlock(create))).await.unwrap().outcome;
    assert!(matches!(made, Outcome::Block(_)), "{made:?}");
    assert!(engine.execute(hold_seat(&venue, 0, LONG_MS)).await.is_err());
    assert!(engine.execute(hold_units(&venue, 3, LONG_MS)).await.is_err());
    let wrong = engine.execute(Request::new(Command::RemoveBlock(other.number, id))).await;
    assert!(matches!(wrong, Err(EngineError::Refused(Refusal::NotFound))), "{wrong:?}");
    let second = CreateBlock {
        event: venue.number,
        id: new_block_id(),
        items: vec![ItemRequest::Seat(SeatNo(1))],
        reason: None,
    };
    let second = engine.execute(Request::new(Command::CreateBlock(second))).await.unwrap().outcome;
    let engine = restart(store, engine).await;
    // Their list, a page for each.
    let page = engine.blocks(&venue, 0, 1).await.unwrap();
    let [(place, block)] = &page.items[..] else { panic!("{page:?}") };
    assert_eq!((Outcome::Block(block.clone()), page.more), (made, true));
    let page = engine.blocks(&venue, *place, 1).await.unwrap();
    let [(place, block)] = &page.items[..] else { panic!("{page:?}") };
    assert_eq!((Outcome::Block(block.clone()), page.more), (second, false));
    assert!(engine.blocks(&venue, *place, 1).await.unwrap().items.is_empty());
    assert!(engine.blocks(&other, 0, 10).await.unwrap().items.is_empty(), "another event's");
    let gone = engine.execute(Request::new(Command::RemoveBlock(venue.number, id))).await.unwrap();
    assert_eq!(gone.outcome, Outcome::BlockGone);
    assert_eq!(engine.blocks(&venue, 0, 10).await.unwrap().items.len(), 1);
    held(engine.execute(hold_seat(&venue, 0, LONG_MS)).await);
    held(engine.execute(hold_units(&venue, 10, LONG_MS)).await);
    engine.close().await;
}

/// What counts against a limit is what the holder has, whatever was done to the rules meanwhile.
pub async fn a_change_of_rules_forgets_nothing_of_what_each_holder_has(store: &dyn EngineStore) {
    let engine = store.open().await;
    let policy = Policy { units_per_holder_max: 2, ..Policy::default() };
    let venue = create_event_with(&*engine, "gala", 1, 6, policy).await;
    let ask = |seat| {
        let mut request = hold_seat(&venue, seat, LONG_MS);
        if let Command::CreateHold(create) = &mut request.command {
            create.holder = Some(reference("ada"));
        }
        engine.execute(request)
    };
    let change = |policy: PolicyPatch| {
        let patch = EventPatch { policy: Some(policy), ..EventPatch::default() };
        engine.execute(Request::new(Command::UpdateEvent(UpdateEvent { event: venue.number, patch })))
    };
    let is_limited = |asked: &Result<Done, EngineError>| {
        matches!(asked, Err(EngineError::Refused(Refusal::HolderLimit { .. })))
    };
    let (first, sold) = (held(ask(0).await), held(ask(1).await));
    engine.execute(confirm(&*engine, sold.id, None)).await.unwrap();

    // A rule that has nothing to do with it.
    change(PolicyPatch { extends_max: Some(1), ..PolicyPatch::default() }).await.unwrap();
    let refused = ask(2).await;
    assert!(is_limited(&refused), "{refused:?}");
    engine.execute(release(&*engine, first.id)).await.unwrap();
    held(ask(2).await);
    let refused = ask(3).await;
    assert!(is_limited(&refused), "{refused:?}");

    // No limit, and then one again: what was taken in between counts too.
    change(PolicyPatch { units_per_holder_max: Some(0), ..PolicyPatch::default() }).await.unwrap();
    held(ask(3).await);
    change(PolicyPatch { units_per_holder_max: Some(4), ..PolicyPatch::default() }).await.unwrap();
    held(ask(4).await);
    let refused = ask(5).await;
    assert!(is_limited(&refused), "{refused:?}");
    engine.close().await;
}

/// Capacity grows at will and shrinks to what is in use.
pub async fn a_capacity_does_not_fall_below_what_is_in_use(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 1).await;
    held(engine.execute(hold_units(&venue, 6, LONG_MS)).await);
    let set = |capacity| {
        let patch = EventPatch { capacities: vec![(PoolNo(0), capacity)], ..EventPatch::default() };
        Request::new(Command::UpdateEvent(UpdateEvent { event: venue.number, patch }))
    };
    let refused = engine.execute(set(5)).await;
    assert!(
        matches!(refused, Err(EngineError::Refused(Refusal::CapacityInUse { in_use: 6, .. }))),
        "{refused:?}"
    );
    engine.execute(set(6)).await.unwrap();
    assert!(engine.execute(hold_units(&venue, 1, LONG_MS)).await.is_err());
    engine.execute(set(7)).await.unwrap();
    held(engine.execute(hold_units(&venue, 1, LONG_MS)).await);
    engine.close().await;
}

/// Events have pages, and each is found by its id; an id is used once.
pub async fn events_are_listed_in_the_order_of_creation(store: &dyn EngineStore) {
    let engine = store.open().await;
    for number in 0..5 {
        create_event_with(&*engine, &format!("event-{number}"), 1, 1, Policy::default()).await;
    }
    let engine = restart(store, engine).await;
    let page = engine.events(None, 3).await.unwrap();
    assert!(page.more);
    let last = page.items.last().expect("three events").0.id.clone();
    let rest = engine.events(Some(&last), 3).await.unwrap();
    assert!(!rest.more);
    let ids: Vec<&str> = page.items.iter().chain(&rest.items).map(|(venue, _)| venue.id.as_str()).collect();
    assert_eq!(ids, ["event-0", "event-1", "event-2", "event-3", "event-4"]);
    assert!(engine.venue("event-9").await.unwrap().is_none());
    let venue = engine.venue("event-3").await.unwrap().expect("it was created");
    let again = Command::CreateEvent(CreateEvent {
        id: venue.id.clone(),
        name: venue.name.clone(),
        layout: venue.layout.clone(),
        pools: vec![],
        policy: Policy::default(),
    });
    let refused = engine.execute(Request::new(again)).await;
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::EventExists))), "{refused:?}");
    engine.close().await;
}

/// The list is read in pages while holds come and go.
pub async fn the_pages_of_a_list_of_holds_have_each_live_hold_once_whatever_else_happens(
    store: &dyn EngineStore,
) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 20, 100).await;
    let asked = (0..2_000).map(|seat| {
        let (engine, venue) = (Arc::clone(&engine), Arc::clone(&venue));
        tokio::spawn(async move { held(engine.execute(hold_seat(&venue, seat, LONG_MS)).await).id })
    });
    let mut ids = Vec::new();
    for id in asked.collect::<Vec<_>>() {
        ids.push(id.await.unwrap());
    }
    // Some are gone before, and some go while the list is read.
    let (gone, going, staying) = (&ids[..100], &ids[100..200], &ids[200..]);
    for id in gone {
        engine.execute(release(&*engine, *id)).await.unwrap();
    }
    let mut listed = Vec::new();
    let (mut after, mut page_number) = (0, 0);
    loop {
        let page = engine.holds(&venue, after, 300).await.unwrap();
        assert!(page.items.len() <= 300);
        listed.extend(page.items.iter().map(|(_, hold)| hold.id));
        for id in going.iter().skip(page_number * 20).take(20) {
            engine.execute(release(&*engine, *id)).await.unwrap();
        }
        page_number += 1;
        match page.next() {
            Some(place) => after = place,
            None => break,
        }
    }
    let count = listed.len();
    listed.sort_unstable();
    listed.dedup();
    assert_eq!(listed.len(), count, "no hold is listed twice");
    assert!(staying.iter().all(|id| listed.binary_search(id).is_ok()));
    assert!(gone.iter().all(|id| listed.binary_search(id).is_err()));
    assert!(engine.holds(&venue, u64::MAX, 10).await.unwrap().items.is_empty());
    engine.close().await;
}
