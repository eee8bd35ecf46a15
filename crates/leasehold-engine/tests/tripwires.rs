//! The file's own keys as tripwires: a state that the rules exclude stops the engine before anybody is told of it.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use leasehold_core::*;
use leasehold_engine::*;

/// An engine, and where it says why it stopped.
fn open(path: &Path) -> (EmbeddedEngine, mpsc::Receiver<String>) {
    let (sender, stopped) = mpsc::channel();
    let options = EmbeddedOptions::new(path).on_fatal(move |why| sender.send(why.to_owned()).unwrap());
    (EmbeddedEngine::open(options).expect("the file opens"), stopped)
}

/// Whatever writes it, the file does not take numbers that cannot be.
#[tokio::test]
async fn a_row_that_cannot_be_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let (engine, _) = open(&path);
    let mut create = create_event("gala");
    let Command::CreateEvent(event) = &mut create.command else { unreachable!("it creates an event") };
    event.pools = vec![(Name::parse("floor").unwrap(), 5)];
    let venue = engine.execute(create).await.unwrap().venue;
    engine.execute(hold(&venue, 0)).await.unwrap();
    engine.close().await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    for rows in [
        "pools SET sold = capacity + 1",
        "pools SET held = capacity, blocked = 1",
        "pools SET held = -1",
        "seats SET state = 'lost'",
        "seats SET fence = -1",
        "events SET state = 'melted'",
    ] {
        let refused = connection.execute(&format!("UPDATE {rows}"), []).expect_err(rows).to_string();
        assert!(refused.contains("CHECK constraint failed"), "{rows}: {refused}");
    }
}

/// A change that did not go through the engine.
fn tamper(path: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(path).unwrap();
    assert_eq!(connection.execute(sql, []).unwrap(), 1, "{sql}");
}

fn create_event(id: &str) -> Request {
    Request::new(Command::CreateEvent(CreateEvent {
        id: Name::parse(id).unwrap(),
        name: Text::parse("Gala").unwrap(),
        layout: Arc::new(Layout::grid(&[(Name::parse("A").unwrap(), 1, 2)]).unwrap()),
        pools: Vec::new(),
        policy: Policy::default(),
    }))
}

fn hold(venue: &Venue, seat: u32) -> Request {
    Request::new(Command::CreateHold(CreateHold {
        event: venue.number,
        id: new_hold_id(),
        items: vec![ItemRequest::Seat(SeatNo(seat))],
        holder: None,
        ttl: None,
    }))
}

fn assert_stopped(stopped: &mpsc::Receiver<String>, constraint: &str) {
    let why = stopped.recv_timeout(Duration::from_secs(10)).expect("it says why it stopped");
    assert!(why.contains(constraint) && why.contains("Nothing is acknowledged any more"), "{why}");
    assert!(why.contains("A key of the data file") && !why.contains("disk"), "no disk is to blame: {why}");
}

#[tokio::test]
async fn a_seat_that_the_file_says_is_sold_is_not_sold_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let (engine, stopped) = open(&path);
    let venue = engine.execute(create_event("gala")).await.unwrap().venue;
    let Outcome::Hold(held) = engine.execute(hold(&venue, 0)).await.unwrap().outcome else {
        panic!("a hold")
    };
    tamper(&path, "INSERT INTO sales (event_no, seat_no, booking_no) VALUES (0, 0, 99)");
    let booking = new_booking_id();
    let confirm = ConfirmHold { hold: held.id, booking, payment_ref: None, order_ref: None, items: None };
    let secret = Some(engine.secret_of(held.id));
    let confirm = engine.execute(Request::new(Command::ConfirmHold(confirm)).with_secret(secret)).await;
    assert!(matches!(confirm, Err(EngineError::Unknown)), "{confirm:?}");
    assert_stopped(&stopped, "UNIQUE constraint failed: sales");
    assert!(matches!(engine.execute(hold(&venue, 1)).await, Err(EngineError::Closed)));
    assert_eq!(engine.gate(&venue, &[ItemRequest::Seat(SeatNo(0))]), None, "nobody is refused any more");
    assert!(matches!(engine.hold(held.id, secret).await, Err(EngineError::Closed)));
    assert!(!engine.is_ready());
    drop(engine);

    tamper(&path, "DELETE FROM sales");
    let report = check_file(&path).unwrap();
    assert_eq!(
        (report.problems, report.holds, report.bookings),
        (Vec::new(), 1, 0),
        "nothing of it is there"
    );
}

#[tokio::test]
async fn a_second_event_of_one_id_does_not_take_the_place_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let (engine, stopped) = open(&path);
    let foreign = "INSERT INTO events (event_no, id, name, state, version, rules)
                   VALUES (7, 'gala', 'Another gala', 'open', 1, x'00')";
    tamper(&path, foreign);
    let created = engine.execute(create_event("gala")).await;
    assert!(matches!(created, Err(EngineError::Unknown)), "{created:?}");
    assert_stopped(&stopped, "UNIQUE constraint failed: events.id");
    drop(engine);
    tamper(&path, "DELETE FROM events WHERE event_no = 7 AND name = 'Another gala'");
}
