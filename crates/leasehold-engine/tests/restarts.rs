//! What a start takes over from its file: who is refused without asking, the time, and which keys were answered.

use std::path::Path;
use std::sync::Arc;

use leasehold_core::*;
use leasehold_engine::*;

const DAY: Millis = Millis(24 * 60 * 60 * 1_000);

fn open(path: &Path, clock: &Clock) -> EmbeddedEngine {
    EmbeddedEngine::open(EmbeddedOptions::new(path).clock(clock.clone())).expect("the file opens")
}

async fn create_event(engine: &dyn Engine) -> Arc<Venue> {
    let create = Command::CreateEvent(CreateEvent {
        id: Name::parse("gala").unwrap(),
        name: Text::parse("Gala").unwrap(),
        layout: Arc::new(Layout::grid(&[(Name::parse("A").unwrap(), 1, 3)]).unwrap()),
        pools: vec![(Name::parse("floor").unwrap(), 10)],
        policy: Policy::default(),
    });
    engine.execute(Request::new(create)).await.unwrap().venue
}

fn ask(venue: &Venue, item: ItemRequest, ttl: Millis) -> Request {
    Request::new(Command::CreateHold(CreateHold {
        event: venue.number,
        id: new_hold_id(),
        items: vec![item],
        holder: None,
        ttl: Some(ttl),
    }))
}

async fn hold(engine: &dyn Engine, venue: &Venue, seat: u32, ttl: Millis) -> Hold {
    let asked = ask(venue, ItemRequest::Seat(SeatNo(seat)), ttl);
    match engine.execute(asked).await.unwrap().outcome {
        Outcome::Hold(hold) => hold,
        other => panic!("not a hold: {other:?}"),
    }
}

async fn close(engine: EmbeddedEngine) {
    engine.close().await;
    drop(engine);
}

#[tokio::test]
async fn who_asks_for_what_is_taken_is_refused_without_waiting_for_the_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let minute = Millis(60_000);
    let clock = Clock::manual(Clock::system().now());
    let engine = open(&path, &clock);
    let venue = create_event(&engine).await;
    hold(&engine, &venue, 0, minute).await;
    engine.execute(ask(&venue, ItemRequest::Pool(PoolNo(0), 8), minute)).await.unwrap();
    close(engine).await;

    // Nothing can queue, so whoever is answered was answered from memory.
    let options = EmbeddedOptions::new(&path).clock(clock.clone()).queue_length_max(0);
    let engine = EmbeddedEngine::open(options).unwrap();
    let refused = async |item| match engine.execute(ask(&venue, item, minute)).await {
        Err(EngineError::Refused(refusal)) => Some(refusal),
        Err(EngineError::Overloaded) => None,
        other => panic!("{other:?}"),
    };
    let taken = Refusal::SeatsTaken(vec![SeatNo(0)]);
    assert_eq!(refused(ItemRequest::Seat(SeatNo(0))).await, Some(taken));
    assert_eq!(refused(ItemRequest::Seat(SeatNo(1))).await, None);
    let short = Refusal::PoolShort { pool: PoolNo(0), available: 2, returning: 8 };
    assert_eq!(refused(ItemRequest::Pool(PoolNo(0), 3)).await, Some(short));
    assert_eq!(refused(ItemRequest::Pool(PoolNo(0), 2)).await, None);
    clock.set(clock.now().after(minute));
    assert_eq!(refused(ItemRequest::Seat(SeatNo(0))).await, None, "a hold that is over is in nobody's way");
}

#[tokio::test]
async fn a_clock_that_was_set_back_over_a_restart_brings_nothing_back_to_life() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let start = Clock::system().now();
    let clock = Clock::manual(start);
    let engine = open(&path, &clock);
    let venue = create_event(&engine).await;
    let over = hold(&engine, &venue, 0, Millis(1_000)).await;
    clock.set(start.after(Millis(2_000)));
    let living = hold(&engine, &venue, 1, Millis(60_000)).await;
    close(engine).await;

    let hour = Millis(60 * 60 * 1_000);
    let early = Clock::manual(Timestamp::from_millis(start.as_millis() - hour.0));
    let engine = open(&path, &early);
    assert_eq!(engine.now(), living.created_at);
    let look = async |hold: &Hold| match engine.hold(hold.id, Some(engine.secret_of(hold.id))).await {
        Ok(Done { outcome: Outcome::Hold(hold), .. }) => hold.state,
        other => panic!("{other:?}"),
    };
    assert_eq!((look(&over).await, look(&living).await), (HoldState::Expired, HoldState::Held));
    assert_eq!(hold(&engine, &venue, 0, Millis(1_000)).await.created_at, living.created_at);
    early.set(living.expires_at);
    assert_eq!(look(&living).await, HoldState::Expired, "not an hour later than it was promised");
}

#[tokio::test]
async fn an_answer_is_remembered_for_a_day_in_memory_on_disk_and_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let start = Clock::system().now();
    let clock = Clock::manual(start);
    let mut engine = open(&path, &clock);
    let venue = create_event(&engine).await;
    let keyed = |scope: u128| {
        let key = IdempotencyKey { scope: scope << 64 | scope, fingerprint: 1 << 64 };
        ask(&venue, ItemRequest::Pool(PoolNo(0), 1), Millis(1_000)).with_key(Some(key))
    };
    let rows = || -> u32 {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.query_row("SELECT count(*) FROM answers", [], |row| row.get(0)).unwrap()
    };
    assert!(!engine.execute(keyed(1)).await.unwrap().replayed);
    assert!(!engine.execute(keyed(2)).await.unwrap().replayed);
    clock.set(start.after(Millis(DAY.0 - 1)));
    assert!(engine.execute(keyed(1)).await.unwrap().replayed, "remembered for a day");
    close(engine).await;
    engine = open(&path, &clock);
    assert!(engine.execute(keyed(1)).await.unwrap().replayed, "also over a restart");

    // The oldest make room for the next; a commit later they are gone from the disk too.
    clock.set(start.after(DAY));
    assert!(!engine.execute(keyed(3)).await.unwrap().replayed);
    assert!(!engine.execute(keyed(1)).await.unwrap().replayed, "its key is free again");
    assert_eq!(rows(), 2, "of the keys 3 and 1");
    close(engine).await;

    clock.set(start.after(Millis(2 * DAY.0)));
    engine = open(&path, &clock);
    assert!(!engine.execute(keyed(3)).await.unwrap().replayed, "too old when it was loaded");
    assert_eq!(rows(), 1, "those that were too old when they were loaded went with the first commit");
}

#[tokio::test]
async fn time_goes_on_from_the_last_answer_although_that_changed_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let start = Clock::system().now();
    let clock = Clock::manual(start);
    let engine = open(&path, &clock);
    let venue = create_event(&engine).await;
    let Outcome::Hold(hold) =
        engine.execute(ask(&venue, ItemRequest::Pool(PoolNo(0), 1), Millis(1_000))).await.unwrap().outcome
    else {
        panic!("a hold was asked for")
    };
    let release = || {
        let secret = engine.secret_of(hold.id);
        Request::new(Command::ReleaseHold(hold.id)).with_secret(Some(secret))
    };
    engine.execute(release()).await.unwrap();
    let later = start.after(Millis(600_000));
    clock.set(later);
    let key = IdempotencyKey { scope: 1 << 64, fingerprint: 1 << 64 };
    assert_eq!(engine.execute(release().with_key(Some(key))).await.unwrap().at, later);
    close(engine).await;

    let engine = open(&path, &Clock::manual(start));
    let event = engine.execute(ask(&venue, ItemRequest::Pool(PoolNo(0), 1), Millis(1_000))).await.unwrap();
    assert!(event.at >= later, "{:?} is before {later:?}", event.at);
    close(engine).await;
}
