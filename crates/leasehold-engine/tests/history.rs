//! The log answers why a seat is whose it is, also after a restart.

use std::path::Path;
use std::sync::Arc;

use leasehold_core::*;
use leasehold_engine::*;

fn open(path: &Path) -> EmbeddedEngine {
    EmbeddedEngine::open(EmbeddedOptions::new(path)).expect("the file opens")
}

async fn create_event(engine: &dyn Engine) -> Arc<Venue> {
    let create = Command::CreateEvent(CreateEvent {
        id: Name::parse("gala").unwrap(),
        name: Text::parse("Gala").unwrap(),
        layout: Arc::new(Layout::grid(&[(Name::parse("A").unwrap(), 1, 10)]).unwrap()),
        pools: Vec::new(),
        policy: Policy::default(),
    });
    engine.execute(Request::new(create)).await.unwrap().venue
}

fn reference(text: &str) -> Reference {
    Reference::parse(text).unwrap()
}

async fn hold(engine: &dyn Engine, venue: &Venue, seat: u32, holder: &str) -> Hold {
    let command = Command::CreateHold(CreateHold {
        event: venue.number,
        id: new_hold_id(),
        items: vec![ItemRequest::Seat(SeatNo(seat))],
        holder: Some(reference(holder)),
        ttl: None,
    });
    match engine.execute(Request::new(command)).await.unwrap().outcome {
        Outcome::Hold(hold) => hold,
        other => panic!("not a hold: {other:?}"),
    }
}

async fn sell(engine: &dyn Engine, hold: &Hold, order: &str) {
    let confirm = Command::ConfirmHold(ConfirmHold {
        hold: hold.id,
        booking: new_booking_id(),
        payment_ref: Some(reference("pay-1")),
        order_ref: Some(reference(order)),
        items: None,
    });
    let request = Request::new(confirm).with_secret(Some(engine.secret_of(hold.id)));
    engine.execute(request).await.unwrap();
}

async fn ask(engine: &dyn Engine, venue: &Venue, about: About) -> LogPage {
    engine.log(venue, LogQuery { about, before: None, limit: 100 }).await.unwrap()
}

fn kinds(page: &LogPage) -> Vec<Kind> {
    page.entries.iter().map(|change| change.kind).collect()
}

#[tokio::test]
async fn the_log_says_who_had_a_seat_and_how_it_was_lost_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let engine = open(&path);
    let venue = create_event(&engine).await;
    let lost = hold(&engine, &venue, 3, "ada").await;
    engine.execute(Request::new(Command::RevokeHold(lost.id))).await.unwrap();
    let won = hold(&engine, &venue, 3, "grace").await;
    hold(&engine, &venue, 4, "ada").await;
    sell(&engine, &won, "order-7").await;

    let mut engine = engine;
    for _ in 0..2 {
        let seat = ask(&engine, &venue, About::Seat(SeatNo(3))).await;
        assert_eq!(
            kinds(&seat),
            [Kind::BookingCreated, Kind::HoldCreated, Kind::HoldRevoked, Kind::HoldCreated],
            "newest first"
        );
        assert_eq!(seat.entries[2].hold, Some(lost.id));
        assert_eq!(seat.entries[0].hold, Some(won.id));
        assert_eq!(seat.owner, Some(SeatOwner::Booking(seat.bookings[0].id)));
        assert_eq!(seat.holds.len(), 2);
        assert!(!seat.more);
        assert_eq!(seat.looked_back_to, Some(1));

        let ada = ask(&engine, &venue, About::Holder(reference("ada"))).await;
        assert_eq!(kinds(&ada), [Kind::HoldCreated, Kind::HoldRevoked, Kind::HoldCreated]);
        let order = ask(&engine, &venue, About::Order(reference("order-7"))).await;
        assert_eq!(kinds(&order), [Kind::BookingCreated, Kind::HoldCreated]);
        let payment = ask(&engine, &venue, About::Order(reference("pay-1"))).await;
        assert_eq!(kinds(&payment), kinds(&order));
        let one = ask(&engine, &venue, About::Hold(lost.id)).await;
        assert_eq!(kinds(&one), [Kind::HoldRevoked, Kind::HoldCreated]);
        assert_eq!(one.holds[0].state, HoldState::Revoked);
        assert!(ask(&engine, &venue, About::Holder(reference("nobody"))).await.entries.is_empty());

        engine.close().await;
        drop(engine);
        engine = open(&path);
    }
}

#[tokio::test]
async fn pages_of_the_log_follow_each_other_without_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(&folder.path().join("a.db"));
    let venue = create_event(&engine).await;
    for seat in 0..10 {
        hold(&engine, &venue, seat, "ada").await;
    }
    let (mut before, mut seen) = (None, Vec::new());
    loop {
        let page = engine.log(&venue, LogQuery { about: About::Everything, before, limit: 4 }).await.unwrap();
        seen.extend(page.entries.iter().map(|change| change.version.number));
        before = page.looked_back_to;
        if !page.more || page.entries.is_empty() {
            break;
        }
    }
    assert_eq!(seen, (1..=11).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_blocked_seat_names_its_block() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(&folder.path().join("a.db"));
    let venue = create_event(&engine).await;
    let id = new_block_id();
    let block = Command::CreateBlock(CreateBlock {
        event: venue.number,
        id,
        items: vec![ItemRequest::Seat(SeatNo(5))],
        reason: Some(Text::parse("camera").unwrap()),
    });
    engine.execute(Request::new(block)).await.unwrap();
    let page = ask(&engine, &venue, About::Seat(SeatNo(5))).await;
    assert_eq!(page.owner, Some(SeatOwner::Block(id)));
    assert_eq!(page.blocks[0].reason.as_ref().map(Text::as_str), Some("camera"));
    engine.execute(Request::new(Command::RemoveBlock(venue.number, id))).await.unwrap();
    let page = ask(&engine, &venue, About::Seat(SeatNo(5))).await;
    assert_eq!((page.owner, kinds(&page)), (None, vec![Kind::BlockRemoved, Kind::BlockCreated]));
}
