//! The log answers why a seat is whose it is.

use leasehold_core::*;
use leasehold_engine::*;

use super::*;

async fn hold_for(engine: &dyn Engine, venue: &Venue, seat: u32, holder: &str) -> Hold {
    let command = Command::CreateHold(CreateHold {
        event: venue.number,
        id: new_hold_id(),
        items: vec![ItemRequest::Seat(SeatNo(seat))],
        holder: Some(reference(holder)),
        ttl: None,
    });
    held(engine.execute(Request::new(command)).await)
}

async fn ask(engine: &dyn Engine, venue: &Venue, about: About) -> LogPage {
    engine.log(venue, LogQuery { about, before: None, limit: 100 }).await.expect("a page of the log")
}

fn kinds(page: &LogPage) -> Vec<Kind> {
    page.entries.iter().map(|change| change.kind).collect()
}

/// "Why did I lose A-4?", by seat, hold, holder, order and payment; and a restart forgets nothing of it.
pub async fn the_log_says_who_had_a_seat_and_how_it_was_lost_also_after_a_restart(store: &dyn EngineStore) {
    let mut engine = store.open().await;
    let venue = create_event(&*engine, 1, 10).await;
    let lost = hold_for(&*engine, &venue, 3, "ada").await;
    let why = Text::parse("camera position").unwrap();
    engine.execute(Request::new(Command::RevokeHold(lost.id, Some(why.clone())))).await.unwrap();
    let won = hold_for(&*engine, &venue, 3, "grace").await;
    hold_for(&*engine, &venue, 4, "ada").await;
    let confirm = ConfirmHold {
        hold: won.id,
        booking: new_booking_id(),
        payment_ref: Some(reference("pay-1")),
        order_ref: Some(reference("order-7")),
        items: None,
    };
    engine.execute(by_owner(&*engine, won.id, Command::ConfirmHold(confirm))).await.unwrap();

    for _ in 0..2 {
        let seat = ask(&*engine, &venue, About::Seat(SeatNo(3))).await;
        assert_eq!(
            kinds(&seat),
            [Kind::BookingCreated, Kind::HoldCreated, Kind::HoldRevoked, Kind::HoldCreated],
            "newest first"
        );
        assert_eq!(seat.entries[2].hold, Some(lost.id));
        assert_eq!(seat.entries[2].reason.as_ref(), Some(&why));
        assert_eq!(seat.entries[3].reason, None);
        assert_eq!(seat.entries[0].hold, Some(won.id));
        assert_eq!(seat.owner, Some(SeatOwner::Booking(seat.bookings[0].id)));
        assert_eq!(seat.holds.len(), 2);
        assert!(!seat.more);
        assert_eq!(seat.looked_back_to, Some(1));

        let ada = ask(&*engine, &venue, About::Holder(reference("ada"))).await;
        assert_eq!(kinds(&ada), [Kind::HoldCreated, Kind::HoldRevoked, Kind::HoldCreated]);
        let order = ask(&*engine, &venue, About::Order(reference("order-7"))).await;
        assert_eq!(kinds(&order), [Kind::BookingCreated, Kind::HoldCreated]);
        let payment = ask(&*engine, &venue, About::Order(reference("pay-1"))).await;
        assert_eq!(kinds(&payment), kinds(&order));
        let one = ask(&*engine, &venue, About::Hold(lost.id)).await;
        assert_eq!(kinds(&one), [Kind::HoldRevoked, Kind::HoldCreated]);
        assert_eq!(one.holds[0].state, HoldState::Revoked);
        assert!(ask(&*engine, &venue, About::Holder(reference("nobody"))).await.entries.is_empty());
        engine = restart(store, engine).await;
    }
    engine.close().await;
}

/// Whoever paid too late reads so, although nothing of it changed the seat.
pub async fn the_log_of_a_seat_tells_of_the_payments_for_it(store: &dyn EngineStore) {
    let mut engine = store.open().await;
    let venue = create_event(&*engine, 1, 10).await;
    let late = hold_for(&*engine, &venue, 3, "ada").await;
    hold_for(&*engine, &venue, 5, "alan").await;
    let begin = BeginPayment { hold: late.id, reference: reference("pay-1"), max_wait: None };
    engine.execute(by_owner(&*engine, late.id, Command::BeginPayment(begin))).await.unwrap();
    let failed = Command::PaymentFailed(late.id, reference("pay-1"));
    engine.execute(by_owner(&*engine, late.id, failed)).await.unwrap();
    engine.execute(release(&*engine, late.id)).await.unwrap();
    hold_for(&*engine, &venue, 3, "grace").await;
    let due = engine.execute(confirm(&*engine, late.id, Some("pay-2"))).await.unwrap().outcome;
    assert_eq!(due, Outcome::RefundDue(reference("pay-2")));
    for _ in 0..2 {
        let seat = ask(&*engine, &venue, About::Seat(SeatNo(3))).await;
        let story = [
            Kind::RefundDue,
            Kind::HoldCreated,
            Kind::HoldReleased,
            Kind::PaymentFailed,
            Kind::PaymentBegun,
            Kind::HoldCreated,
        ];
        assert_eq!(kinds(&seat), story, "newest first, and nothing of other seats");
        assert_eq!(seat.entries[0].hold, Some(late.id));
        let ada = ask(&*engine, &venue, About::Holder(reference("ada"))).await;
        assert_eq!(kinds(&ada)[0], Kind::RefundDue);
        engine = restart(store, engine).await;
    }
    engine.close().await;
}

/// Page by page to the first entry.
pub async fn pages_of_the_log_follow_each_other_without_a_gap(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 10).await;
    for seat in 0..10 {
        hold_for(&*engine, &venue, seat, "ada").await;
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
    engine.close().await;
}

/// Also when it is the operator who has it.
pub async fn a_blocked_seat_names_its_block(store: &dyn EngineStore) {
    let engine = store.open().await;
    let venue = create_event(&*engine, 1, 10).await;
    let id = new_block_id();
    let block = Command::CreateBlock(CreateBlock {
        event: venue.number,
        id,
        items: vec![ItemRequest::Seat(SeatNo(5))],
        reason: Text::parse("camera").ok(),
    });
    engine.execute(Request::new(block)).await.unwrap();
    let page = ask(&*engine, &venue, About::Seat(SeatNo(5))).await;
    assert_eq!(page.owner, Some(SeatOwner::Block(id)));
    assert_eq!(page.blocks[0].reason.as_ref().map(Text::as_str), Some("camera"));
    engine.execute(Request::new(Command::RemoveBlock(venue.number, id))).await.unwrap();
    let page = ask(&*engine, &venue, About::Seat(SeatNo(5))).await;
    assert_eq!((page.owner, kinds(&page)), (None, vec![Kind::BlockRemoved, Kind::BlockCreated]));
    engine.close().await;
}
