//! A data file that is moved into a ledger: clients notice nothing.

use std::path::Path;
use std::time::Duration;

use leasehold_core::*;
use leasehold_engine::*;
use leasehold_testkit::engine_suite::*;
use leasehold_testkit::servers::{FaultProxy, Postgres};

/// What clients of the file know before it is moved.
struct Before {
    key: SecretKey,
    venues: Vec<std::sync::Arc<Venue>>,
    summaries: Vec<EventSummary>,
    seats: Vec<Vec<SeatStatus>>,
    /// Live, paying, sold, released, with a refund due.
    holds: Vec<Hold>,
    booking: Booking,
    /// A command that was answered under a key, and what.
    answered: (Command, Outcome),
    version: Version,
    log: Vec<u64>,
}

fn seats_of(availability: Availability) -> Vec<SeatStatus> {
    match availability {
        Availability::Full(snapshot) => snapshot.seats.clone(),
        other => panic!("{other:?}"),
    }
}

async fn hold_of(engine: &dyn Engine, hold: HoldId) -> Hold {
    held(engine.hold(hold, Some(engine.secret_of(hold))).await)
}

fn by(holder: &str, mut request: Request) -> Request {
    if let Command::CreateHold(create) = &mut request.command {
        create.holder = Some(reference(holder));
    }
    request
}

async fn log(engine: &dyn Engine, venue: &Venue) -> Vec<u64> {
    let query = LogQuery { about: About::Everything, before: None, limit: 100 };
    let page = engine.log(venue, query).await.unwrap();
    page.entries.iter().map(|change| change.version.number).collect()
}

/// A file with something of everything in it.
async fn fill(path: &Path) -> Before {
    let engine = EmbeddedEngine::open(EmbeddedOptions::new(path)).unwrap();
    let gala = create_event(&engine, 2, 10).await;
    let version = engine.event(&gala).await.unwrap().version;
    let policy = Policy { units_per_holder_max: 2, ..Policy::default() };
    let limited = create_event_with(&engine, "limited", 1, 4, policy).await;
    let closed = create_event_with(&engine, "closed", 1, 4, Policy::default()).await;

    let items = vec![ItemRequest::Seat(SeatNo(0)), ItemRequest::Pool(PoolNo(0), 3)];
    let command = hold_items(&gala, items, LONG_MS * 5).command;
    let request = Request::new(command.clone()).with_key(key(7, 1));
    let answered = engine.execute(request).await.unwrap().outcome;
    let Outcome::Hold(live) = &answered else { panic!("{answered:?}") };
    let paying = held(engine.execute(hold_seat(&gala, 1, LONG_MS)).await);
    let begin = BeginPayment { hold: paying.id, reference: reference("pay-1"), max_wait: None };
    engine.execute(by_owner(&engine, paying.id, Command::BeginPayment(begin))).await.unwrap();
    let sold = held(engine.execute(hold_seat(&gala, 2, LONG_MS)).await);
    let sale = engine.execute(confirm(&engine, sold.id, Some("pay-2"))).await.unwrap().outcome;
    let Outcome::Booking(booking) = sale else { panic!("{sale:?}") };
    let released = held(engine.execute(hold_seat(&gala, 3, LONG_MS)).await);
    engine.execute(release(&engine, released.id)).await.unwrap();
    let block = CreateBlock {
        event: gala.number,
        id: new_block_id(),
        items: vec![ItemRequest::Seat(SeatNo(4)), ItemRequest::Pool(PoolNo(0), 1)],
        reason: Text::parse("Press").ok(),
    };
    engine.execute(Request::new(Command::CreateBlock(block))).await.unwrap();
    let first = held(engine.execute(by("ada", hold_seat(&limited, 0, LONG_MS))).await);
    engine.execute(confirm(&engine, first.id, None)).await.unwrap();
    held(engine.execute(by("ada", hold_seat(&limited, 1, LONG_MS))).await);
    let patch = EventPatch { open: Some(false), ..EventPatch::default() };
    let close = Command::UpdateEvent(UpdateEvent { event: closed.number, patch });
    engine.execute(Request::new(close)).await.unwrap();

    let venues = vec![gala, limited, closed];
    let (mut summaries, mut seats) = (Vec::new(), Vec::new());
    for venue in &venues {
        summaries.push(engine.event(venue).await.unwrap());
        seats.push(seats_of(engine.availability(venue, Since::Nothing).await.unwrap()));
    }
    let mut holds = Vec::new();
    for id in [live.id, paying.id, sold.id, released.id, first.id] {
        holds.push(hold_of(&engine, id).await);
    }
    let log = log(&engine, &venues[0]).await;
    engine.close().await;
    let key = DataFile::open(path).unwrap().key().clone();
    Before { key, venues, summaries, seats, holds, booking, answered: (command, answered), version, log }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_in_a_data_file_is_in_the_ledger_afterwards_and_nothing_is_sold_in_both() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let before = fill(&path).await;
    // Its key was used once before, more than a day ago.
    let file = rusqlite::Connection::open(&path).unwrap();
    let used = "UPDATE answers SET seq = seq + 1;
                INSERT INTO answers SELECT seq - 1, scope, randomblob(16), at_ms - 90000000, answer FROM answers";
    file.execute_batch(used).unwrap();
    drop(file);
    let server = Postgres::start();
    let url = server.url();
    let moved = DataFile::open(&path).unwrap().move_into(&url).await.unwrap().expect("for the first time");
    assert_eq!((moved.events, moved.bookings, moved.answers), (3, 2, 1), "{moved:?}");
    assert_eq!(check_ledger(&url).await.unwrap().problems, Vec::<String>::new());

    let refused = EmbeddedEngine::open(EmbeddedOptions::new(&path)).unwrap_err();
    assert!(matches!(refused, OpenError::Moved { .. }), "{refused}");
    let other = ClusterEngine::open(ClusterOptions::new(&url, SecretKey::random())).await.unwrap_err();
    assert!(matches!(other, OpenLedgerError::OtherKey), "{other}");
    let engine = ClusterEngine::open(ClusterOptions::new(&url, before.key.clone())).await.unwrap();
    for ((venue, summary), seats) in before.venues.iter().zip(&before.summaries).zip(&before.seats) {
        let known = engine.venue(venue.id.as_str()).await.unwrap().expect("it is there");
        assert_eq!((known.number, known.created_at), (venue.number, venue.created_at));
        let mut expected = summary.clone();
        expected.version.number += 1;
        assert_eq!(engine.event(&known).await.unwrap(), expected);
        assert_eq!(seats_of(engine.availability(&known, Since::Nothing).await.unwrap()), *seats);
    }
    for hold in &before.holds {
        assert_eq!(hold_of(&engine, hold.id).await, *hold);
    }
    let sale = engine.booking(before.booking.id).await.unwrap().outcome;
    assert_eq!(sale, Outcome::Booking(before.booking.clone()));

    // The stream and the log go on where they were.
    let gala = &before.venues[0];
    let last = before.summaries[0].version.number + 1;
    let mut stream = engine.subscribe(gala, Since::Version(before.version)).await.unwrap();
    let StreamStep::Changes(changes) = stream.next().await else { panic!("a reader has to begin anew") };
    let seen: Vec<u64> = changes.iter().map(|change| change.version.number).collect();
    assert_eq!(seen, (before.version.number + 1..=last).collect::<Vec<_>>());
    assert_eq!(log(&engine, gala).await, [vec![last], before.log.clone()].concat());

    // A request that was answered is answered again, and not carried out again.
    let (command, outcome) = before.answered;
    let again = engine.execute(Request::new(command).with_key(key(7, 1))).await.unwrap();
    assert!(again.replayed && again.outcome == outcome, "{again:?}");

    // What was begun goes on: a payment, a cancelled sale with a higher fence after it, a limit.
    engine.execute(confirm(&engine, before.holds[1].id, Some("pay-1"))).await.unwrap();
    let cancel = Command::CancelBooking(CancelBooking { booking: before.booking.id });
    engine.execute(Request::new(cancel)).await.unwrap();
    let next = held(engine.execute(hold_seat(gala, 2, LONG_MS)).await);
    let fence = |items: &[Item]| match items {
        [Item::Seat { fence, .. }] => *fence,
        other => panic!("{other:?}"),
    };
    assert!(fence(&next.items) > fence(&before.booking.items), "{next:?}");
    let limited = engine.execute(by("ada", hold_seat(&before.venues[1], 2, LONG_MS))).await;
    assert!(matches!(limited, Err(EngineError::Refused(Refusal::HolderLimit { .. }))), "{limited:?}");
    engine.close().await;
    assert_eq!(check_ledger(&url).await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_with_something_in_it_takes_no_file_and_the_file_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let before = fill(&path).await;
    let server = Postgres::start();
    let key = before.key.clone();
    let engine = ClusterEngine::open(ClusterOptions::new(server.url(), key)).await.unwrap();
    create_event(&engine, 1, 1).await;
    let refused = DataFile::open(&path).unwrap().move_into(&server.url()).await.unwrap_err();
    assert!(matches!(refused, MoveError::NotEmpty(1)), "{refused}");
    engine.close().await;
    let engine = EmbeddedEngine::open(EmbeddedOptions::new(&path)).unwrap();
    assert_eq!(hold_of(&engine, before.holds[0].id).await, before.holds[0]);
    engine.close().await;
}

/// The ledger commits, and its answer is lost: it is asked what became of it, and nothing is sold in both.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_whose_commit_got_no_answer_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let before = fill(&path).await;
    let server = Postgres::start();
    let proxy = FaultProxy::start(server.address()).await;
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    DataFile::prepare(&url, &before.key).await.unwrap();
    // A commit that takes long enough to be seen.
    let looks = server.client().await;
    let slow = "CREATE FUNCTION take_long() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN PERFORM pg_sleep(4); RETURN NULL; END $$;
                CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON leasehold.ledger DEFERRABLE INITIALLY DEFERRED
                    FOR EACH ROW EXECUTE FUNCTION take_long()";
    looks.batch_execute(slow).await.unwrap();
    let file = DataFile::open(&path).unwrap();
    let cutting = async {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE query = 'COMMIT' AND state = 'active'";
        until("it commits", async || looks.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 1).await;
        assert!(proxy.cut().await > 0, "nobody was connected");
        // The first time that it is asked, it cannot be.
        proxy.refuse().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        proxy.pass().await;
    };
    let (moved, ()) = tokio::join!(file.move_into(&url), cutting);
    let moved = moved.expect("it was committed");
    assert_eq!(moved.expect("by this very move").events, 3);
    let refused = EmbeddedEngine::open(EmbeddedOptions::new(&path)).unwrap_err();
    assert!(matches!(refused, OpenError::Moved { .. }), "{refused}");
    assert_eq!(check_ledger(&server.url()).await.unwrap().problems, Vec::<String>::new());
}

/// As a move leaves the file that is killed around its commit.
async fn mark_moving(path: &Path, server: &Postgres) {
    let row = server.client().await.query_one("SELECT id FROM leasehold.ledger", &[]).await.unwrap();
    let ledger: uuid::Uuid = row.get(0);
    let file = rusqlite::Connection::open(path).unwrap();
    let sql = "INSERT OR REPLACE INTO meta (name, value) VALUES ('moved', ?1)";
    file.execute(sql, [ledger.as_bytes().as_slice()]).unwrap();
}

/// Killed around the commit: no server starts on the file, and the next attempt finds out whether it is in the ledger.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_was_killed_is_finished_by_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    fill(&path).await;
    let server = Postgres::start();
    let key = DataFile::key_of(&path).unwrap();
    DataFile::prepare(&server.url(), &key).await.unwrap();
    mark_moving(&path, &server).await;
    let refused = EmbeddedEngine::open(EmbeddedOptions::new(&path)).unwrap_err();
    assert!(matches!(refused, OpenError::Moving { .. }), "{refused}");
    // It may be there already: another ledger does not take it, too.
    let other = Postgres::start();
    let refused = DataFile::open(&path).unwrap().move_into(&other.url()).await.unwrap_err();
    assert!(matches!(refused, MoveError::OtherLedger), "{refused}");
    let moved = DataFile::open(&path).unwrap().move_into(&server.url()).await.unwrap();
    assert_eq!(moved.expect("it was not committed").events, 3);
    mark_moving(&path, &server).await;
    let again = DataFile::open(&path).unwrap().move_into(&server.url()).await.unwrap();
    assert_eq!(again, None, "it was committed");
    let refused = DataFile::open(&path).unwrap_err();
    assert!(matches!(refused, OpenError::Moved { .. }), "{refused}");
}

/// Killed before the commit, and then the ledger was used for something else: the file is a shop again.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_did_not_get_into_a_ledger_can_be_served_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    fill(&path).await;
    let server = Postgres::start();
    let proxy = FaultProxy::start(server.address()).await;
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let engine = ClusterEngine::open(ClusterOptions::new(server.url(), SecretKey::random())).await.unwrap();
    create_event(&engine, 2, 10).await;
    engine.close().await;
    mark_moving(&path, &server).await;
    proxy.refuse().await;
    let unasked = DataFile::open(&path).unwrap().move_into(&url).await.unwrap_err();
    assert!(matches!(unasked, MoveError::Ledger(_)), "{unasked}");
    let refused = EmbeddedEngine::open(EmbeddedOptions::new(&path)).unwrap_err();
    assert!(matches!(refused, OpenError::Moving { .. }), "nobody was asked: {refused}");
    proxy.pass().await;
    let refused = DataFile::open(&path).unwrap().move_into(&url).await.unwrap_err();
    assert!(matches!(refused, MoveError::NotEmpty(1)), "{refused}");
    EmbeddedEngine::open(EmbeddedOptions::new(&path)).unwrap().close().await;
}
