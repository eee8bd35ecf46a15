//! What the embedded engine promises beyond what every engine does: its file, its clock, its bounds.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::*;
use leasehold_engine::*;

fn open(path: &Path) -> EmbeddedEngine {
    EmbeddedEngine::open(EmbeddedOptions::new(path)).expect("the file opens")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

async fn create_event(engine: &dyn Engine, rows: u32, seats: u32) -> Arc<Venue> {
    let layout = Layout::grid(&[(Name::parse("A").unwrap(), rows, seats)]).unwrap();
    let create = Command::CreateEvent(CreateEvent {
        id: Name::parse("gala").unwrap(),
        name: Text::parse("Gala").unwrap(),
        layout: Arc::new(layout),
        pools: vec![(Name::parse("floor").unwrap(), 10)],
        policy: Policy { hold_ttl: Millis(1_000), ..Policy::default() },
    });
    engine.execute(Request::new(create)).await.unwrap().venue
}

fn hold(venue: &Venue, seat: u32, ttl_ms: u64) -> Request {
    Request::new(Command::CreateHold(CreateHold {
        event: venue.number,
        id: new_hold_id(),
        items: vec![ItemRequest::Seat(SeatNo(seat))],
        holder: None,
        ttl: Some(Millis(ttl_ms)),
    }))
}

fn pool_hold(venue: &Venue, quantity: u32) -> Request {
    Request::new(Command::CreateHold(CreateHold {
        event: venue.number,
        id: new_hold_id(),
        items: vec![ItemRequest::Pool(PoolNo(0), quantity)],
        holder: None,
        ttl: None,
    }))
}

fn held(done: Done) -> Hold {
    match done.outcome {
        Outcome::Hold(hold) => hold,
        other => panic!("not a hold: {other:?}"),
    }
}

#[tokio::test]
async fn a_second_process_gets_a_clear_error() {
    let folder = folder();
    let path = folder.path().join("a.db");
    let _engine = open(&path);
    let error = EmbeddedEngine::open(EmbeddedOptions::new(&path)).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }));
    assert!(error.to_string().contains("in use by another process"), "{error}");
}

#[tokio::test]
async fn a_restored_backup_starts_an_epoch_with_higher_fences() {
    let folder = folder();
    let (path, copy) = (folder.path().join("a.db"), folder.path().join("copy.db"));
    let engine = open(&path);
    let venue = create_event(&engine, 1, 1).await;
    engine.backup(&copy).await.unwrap();
    assert!(engine.backup(&copy).await.is_err(), "a backup never overwrites");
    let lost = held(engine.execute(hold(&venue, 0, 60_000)).await.unwrap());
    drop(engine);

    let engine = open(&copy);
    let restored = held(engine.execute(hold(&venue, 0, 60_000)).await.unwrap());
    let (Item::Seat { fence: lost, .. }, Item::Seat { fence: restored, .. }) =
        (lost.items[0], restored.items[0])
    else {
        panic!("seats")
    };
    assert!(lost < restored, "a fence that was issued and lost with the original is never issued again");
    let epoch = engine.event(&venue).await.unwrap().version.epoch;
    assert!(epoch > Epoch::FIRST);
    drop(engine);
    let engine = open(&copy);
    assert_eq!(engine.event(&venue).await.unwrap().version.epoch, epoch, "only once");
    assert!(check_file(&copy).unwrap().problems.is_empty());
}

/// How large a data file is.
#[derive(Debug, Clone, Copy)]
struct Size {
    entries: u64,
    holds: u64,
    answers: u64,
    pages: u64,
    log_bytes: u64,
}

fn size(path: &Path) -> Size {
    let connection = rusqlite::Connection::open(path).unwrap();
    let look = |sql: &str| connection.query_row(sql, [], |row| row.get(0)).unwrap();
    Size {
        entries: look("SELECT sum(last_seq - first_seq + 1) FROM journal"),
        holds: look("SELECT count(*) FROM holds"),
        answers: look("SELECT count(*) FROM answers"),
        pages: look("PRAGMA page_count"),
        log_bytes: std::fs::metadata(path.with_extension("db-wal")).unwrap().len(),
    }
}

#[tokio::test]
async fn the_file_does_not_grow_for_ever() {
    const ROUNDS: usize = 6;
    const HOLDS: u64 = 20_000;
    let folder = folder();
    let path = folder.path().join("a.db");
    let clock = Clock::manual(Clock::system().now());
    let options = EmbeddedOptions::new(&path).clock(clock.clone());
    let engine = Arc::new(EmbeddedEngine::open(options).unwrap());
    let venue = create_event(engine.as_ref(), 10, 100).await;
    let mut pages = Vec::new();
    for round in 0..ROUNDS as u64 {
        let tasks: Vec<_> = (0..100)
            .map(|task: u64| {
                let (engine, venue) = (Arc::clone(&engine), Arc::clone(&venue));
                tokio::spawn(async move {
                    for turn in 0..HOLDS / 100 {
                        let seat = (task * 10 + turn % 10) as u32;
                        // Both halves of a key's hash name it.
                        let number = u128::from((round * 1_000 + task) << 32 | turn);
                        let key = IdempotencyKey { scope: number << 64 | number, fingerprint: number << 64 };
                        let hold = hold(&venue, seat, 60_000).with_key(Some(key));
                        let hold = held(engine.execute(hold).await.unwrap());
                        let secret = engine.secret_of(hold.id);
                        let release = Command::ReleaseHold(hold.id);
                        engine.execute(Request::new(release).with_secret(Some(secret))).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        // 40,000 entries a round, 65,536 of which stay; those of the row in which the limit lies are all kept. Holds and
        // answers of the round before are a day old.
        let bounded = |size: Size| {
            size.entries <= 65_536 + 1_000 && size.holds <= HOLDS && size.answers <= HOLDS + 1_000
        };
        until(|| bounded(size(&path)) && engine.meters().tables_behind.get() == 0).await;
        let Size { pages: now, log_bytes, .. } = size(&path);
        // Whoever reads the file, as this test does, keeps the log from beginning anew for a moment.
        assert!(log_bytes < 64 * 1024 * 1024, "the write-ahead log has {log_bytes} bytes");
        pages.push(now);
        clock.set(clock.now().after(Millis(25 * 60 * 60 * 1_000)));
    }
    // From the third round on everything that is ever deleted is. Pages are not all filled alike; a file that keeps everything
    // would have twice as many in the last round as in the third.
    let (begin, rest) = pages.split_at(ROUNDS / 2);
    assert!(rest.iter().all(|pages| pages * 4 <= begin[begin.len() - 1] * 5), "{pages:?}");
    drop(engine);
    assert!(check_file(&path).unwrap().problems.is_empty());
}

#[tokio::test]
async fn a_backup_that_is_restored_twice_issues_other_fences_each_time() {
    let folder = folder();
    let (path, copy) = (folder.path().join("a.db"), folder.path().join("copy.db"));
    let engine = open(&path);
    let venue = create_event(&engine, 1, 1).await;
    engine.backup(&copy).await.unwrap();
    drop(engine);
    let mut fences = Vec::new();
    for (name, hour) in [("one.db", 0), ("two.db", 1)] {
        let restored = folder.path().join(name);
        std::fs::copy(&copy, &restored).unwrap();
        let now = Clock::system().now().after(Millis(hour * 3_600_000));
        let engine = EmbeddedEngine::open(EmbeddedOptions::new(&restored).clock(Clock::manual(now))).unwrap();
        let hold = held(engine.execute(hold(&venue, 0, 60_000)).await.unwrap());
        let Item::Seat { fence, .. } = hold.items[0] else { panic!("a seat") };
        fences.push(fence);
    }
    assert!(fences[0] < fences[1], "{fences:?}");
}

#[tokio::test]
async fn a_hold_that_ran_out_long_ago_is_ended_and_forgotten_without_harm() {
    let folder = folder();
    let path = folder.path().join("a.db");
    let start = Clock::system().now();
    let clock = Clock::manual(start);
    let reopen =
        || EmbeddedEngine::open(EmbeddedOptions::new(&path).clock(clock.clone())).expect("the file opens");
    let engine = reopen();
    let venue = create_event(&engine, 1, 2).await;
    let old = held(engine.execute(hold(&venue, 0, 1_000)).await.unwrap());
    engine.close().await;
    drop(engine);
    clock.set(start.after(Millis(25 * 60 * 60 * 1_000)));
    let engine = reopen();
    let secret = engine.secret_of(old.id);
    // Ended by the first look, forgotten by the second.
    for _ in 0..2 {
        let _ = engine.hold(old.id, Some(secret)).await;
    }
    assert!(matches!(engine.hold(old.id, Some(secret)).await, Err(EngineError::Refused(Refusal::NotFound))));
    assert_eq!(engine.event(&venue).await.unwrap().counts.free, 2);
    let next = held(engine.execute(hold(&venue, 0, 60_000)).await.unwrap());
    assert_eq!(next.version, 1);
    engine.close().await;
    drop(engine);
    assert!(check_file(&path).unwrap().problems.is_empty());
}

#[tokio::test]
async fn a_file_has_one_lock_whatever_name_it_is_opened_by() {
    let folder = folder();
    let path = folder.path().join("a.db");
    let _engine = open(&path);
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let link = elsewhere.join("b.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let same = elsewhere.join("c.db");
    std::fs::hard_link(&path, &same).unwrap();
    for name in [&link, &same] {
        assert!(matches!(EmbeddedEngine::open(EmbeddedOptions::new(name)), Err(OpenError::InUse { .. })));
    }
    // It looks like something that was left behind.
    std::fs::remove_file(path.with_extension("db.lock")).unwrap();
    assert!(matches!(EmbeddedEngine::open(EmbeddedOptions::new(&path)), Err(OpenError::InUse { .. })));
}

#[tokio::test]
async fn a_refund_that_is_due_is_remembered() {
    let folder = folder();
    let path = folder.path().join("a.db");
    let engine = open(&path);
    let venue = create_event(&engine, 1, 1).await;
    let late = held(engine.execute(hold(&venue, 0, 60_000)).await.unwrap());
    let secret = Some(engine.secret_of(late.id));
    engine.execute(Request::new(Command::ReleaseHold(late.id)).with_secret(secret)).await.unwrap();
    engine.execute(hold(&venue, 0, 60_000)).await.unwrap();
    let confirm = || {
        Request::new(Command::ConfirmHold(ConfirmHold {
            hold: late.id,
            booking: new_booking_id(),
            payment_ref: Some(Reference::parse("pay-1").unwrap()),
            order_ref: None,
            items: None,
        }))
        .with_secret(secret)
    };
    let due = engine.execute(confirm()).await.unwrap().outcome;
    assert!(matches!(due, Outcome::RefundDue(_)));
    engine.close().await;
    drop(engine);
    let much_later = Clock::manual(Clock::system().now().after(Millis(400 * 24 * 60 * 60 * 1_000)));
    let engine = EmbeddedEngine::open(EmbeddedOptions::new(&path).clock(much_later)).unwrap();
    assert_eq!(engine.execute(confirm()).await.unwrap().outcome, due, "it has to do with money");
}

#[tokio::test]
async fn a_hold_whose_payments_failed_is_forgotten_with_them_in_memory_and_on_disk() {
    const MONTH: Millis = Millis(30 * 24 * 60 * 60 * 1_000);
    let folder = folder();
    let path = folder.path().join("a.db");
    let start = Clock::system().now();
    let clock = Clock::manual(start);
    let reopen =
        || EmbeddedEngine::open(EmbeddedOptions::new(&path).clock(clock.clone())).expect("the file opens");
    let rows = |table: &str| -> u32 {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    let engine = reopen();
    let venue = create_event(&engine, 1, 2).await;
    let declined = held(engine.execute(hold(&venue, 0, 60_000)).await.unwrap());
    let secret = Some(engine.secret_of(declined.id));
    let begin = |reference: &str| {
        let reference = Reference::parse(reference).unwrap();
        let begin = BeginPayment { hold: declined.id, reference, max_wait: None };
        Request::new(Command::BeginPayment(begin)).with_secret(secret)
    };
    for reference in ["pay-1", "pay-2"] {
        engine.execute(begin(reference)).await.unwrap();
        let failed = Command::PaymentFailed(declined.id, Reference::parse(reference).unwrap());
        engine.execute(Request::new(failed).with_secret(secret)).await.unwrap();
    }
    engine.execute(Request::new(Command::ReleaseHold(declined.id)).with_secret(secret)).await.unwrap();
    until(|| rows("payments") == 2).await;
    clock.set(start.after(Millis(MONTH.0 - 1)));
    assert!(engine.hold(declined.id, secret).await.is_ok(), "remembered for a month");
    clock.set(start.after(MONTH));
    // Forgotten before the look, shown by the tables a moment later.
    assert!(matches!(engine.hold(declined.id, secret).await, Err(EngineError::Refused(Refusal::NotFound))));
    until(|| rows("payments") + rows("holds") == 0).await;
    engine.close().await;
    drop(engine);

    assert_eq!(check_file(&path).unwrap().problems, Vec::<String>::new());
    let engine = reopen();
    assert!(matches!(engine.hold(declined.id, secret).await, Err(EngineError::Refused(Refusal::NotFound))));
    let next = held(engine.execute(hold(&venue, 0, 60_000)).await.unwrap());
    let again = BeginPayment { hold: next.id, reference: Reference::parse("pay-1").unwrap(), max_wait: None };
    let again = Request::new(Command::BeginPayment(again)).with_secret(Some(engine.secret_of(next.id)));
    assert!(engine.execute(again).await.is_ok(), "a forgotten reference is free");
}

/// Waits for what happens on the writer's thread in its own time.
async fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not happen within ten seconds");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_is_shed_and_what_was_accepted_is_done() {
    let folder = folder();
    let options = EmbeddedOptions::new(folder.path().join("a.db")).queue_length_max(8);
    let engine = Arc::new(EmbeddedEngine::open(options).unwrap());
    let venue = create_event(engine.as_ref(), 10, 100).await;
    let callers: Vec<_> = (0..1_000)
        .map(|seat| {
            let (engine, venue) = (Arc::clone(&engine), Arc::clone(&venue));
            tokio::spawn(async move { engine.execute(hold(&venue, seat, 60_000)).await })
        })
        .collect();
    let (mut granted, mut shed) = (0, 0);
    for caller in callers {
        match caller.await.unwrap() {
            Ok(_) => granted += 1,
            Err(EngineError::Overloaded) => shed += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(shed > 0 && granted > 0, "{granted} granted, {shed} shed");
    assert_eq!(engine.event(&venue).await.unwrap().counts.held, granted);
}

#[tokio::test]
async fn a_file_of_a_newer_program_is_refused() {
    let folder = folder();
    let path = folder.path().join("a.db");
    drop(open(&path));
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let error = EmbeddedEngine::open(EmbeddedOptions::new(&path)).unwrap_err();
    assert!(matches!(error, OpenError::TooNew { found: 99, .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_of_a_list_of_holds_have_each_live_hold_once_whatever_else_happens() {
    let folder = folder();
    let engine = Arc::new(open(&folder.path().join("a.db")));
    let venue = create_event(engine.as_ref(), 100, 100).await;
    let asked = (0..10_000).map(|seat| {
        let (engine, venue) = (Arc::clone(&engine), Arc::clone(&venue));
        tokio::spawn(async move { held(engine.execute(hold(&venue, seat, 60_000)).await.unwrap()).id })
    });
    let mut ids = Vec::new();
    for id in asked.collect::<Vec<_>>() {
        ids.push(id.await.unwrap());
    }
    // Some are gone before, and some go while the list is read.
    let (gone, going, staying) = (&ids[..500], &ids[500..1_000], &ids[1_000..]);
    let release = async |id: HoldId| {
        let secret = Some(engine.secret_of(id));
        engine.execute(Request::new(Command::ReleaseHold(id)).with_secret(secret)).await.unwrap();
    };
    for id in gone {
        release(*id).await;
    }
    let mut listed = Vec::new();
    let (mut after, mut page_number) = (0, 0);
    loop {
        let page = engine.holds(&venue, after, 700).await.unwrap();
        assert!(page.items.len() <= 700);
        listed.extend(page.items.iter().map(|(_, hold)| hold.id));
        for id in going.iter().skip(page_number * 50).take(50) {
            release(*id).await;
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
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_expiries_is_spread_over_commits_and_nobody_is_told_sold_out_falsely() {
    const HOLDS: u32 = 10_000;
    let folder = folder();
    let path = folder.path().join("a.db");
    let start = Clock::system().now();
    let clock = Clock::manual(start);
    let options = EmbeddedOptions::new(&path).clock(clock.clone());
    let engine = Arc::new(EmbeddedEngine::open(options).unwrap());
    let create = Command::CreateEvent(CreateEvent {
        id: Name::parse("gala").unwrap(),
        name: Text::parse("Gala").unwrap(),
        layout: Arc::default(),
        pools: vec![(Name::parse("floor").unwrap(), HOLDS)],
        policy: Policy { hold_ttl: Millis(60_000), ..Policy::default() },
    });
    let venue = engine.execute(Request::new(create)).await.unwrap().venue;
    let ask = |quantity| {
        let (engine, venue) = (Arc::clone(&engine), Arc::clone(&venue));
        tokio::spawn(async move { engine.execute(pool_hold(&venue, quantity)).await })
    };
    let mut last = None;
    for task in (0..HOLDS).map(|_| ask(1)).collect::<Vec<_>>() {
        let hold = held(task.await.unwrap().unwrap());
        last = last.max(Some((hold.number, hold.id)));
    }
    let entries = || -> (u64, u64) {
        let connection = rusqlite::Connection::open(&path).unwrap();
        let sql = "SELECT max(last_seq), max(CASE WHEN first_seq > ?1 THEN last_seq - first_seq + 1 END) FROM journal";
        let look = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, Option<u64>>(1)?.unwrap_or(0)));
        connection.query_row(sql, [u64::from(HOLDS) + 1], look).unwrap()
    };
    assert_eq!(entries().0, u64::from(HOLDS) + 1);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let commits: u32 = connection.query_row("SELECT count(*) FROM journal", [], |row| row.get(0)).unwrap();
    assert!(commits < HOLDS / 2, "callers that come together share a commit: {commits} for {HOLDS}");

    clock.set(start.after(Millis(60_000)));
    // One of the last to be ended: over all the same, and not listed as a hold that keeps something.
    let (_, last) = last.unwrap();
    let seen = held(engine.hold(last, Some(engine.secret_of(last))).await.unwrap());
    assert_eq!((seen.state, seen.ended_at), (HoldState::Expired, start.after(Millis(60_000))));
    assert!(engine.holds(&venue, 0, 10).await.unwrap().items.is_empty());
    // Each of the two gets half of what ten thousand others had.
    for task in [ask(HOLDS / 2), ask(HOLDS / 2)] {
        task.await.unwrap().expect("everything comes back");
    }
    let (_, largest) = entries();
    assert!(largest <= 2_048 + 64 + 2, "{largest} entries in one commit");
    let refused = engine.execute(pool_hold(&venue, 1)).await;
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::PoolShort { .. }))), "{refused:?}");
}

#[tokio::test]
async fn a_check_misses_no_row_that_is_not_there() {
    let folder = folder();
    let path = folder.path().join("a.db");
    let engine = open(&path);
    create_event(&engine, 1, 10).await;
    until(|| check_file(&path).unwrap().behind == 0).await;
    engine.close().await;
    drop(engine);
    assert_eq!(check_file(&path).unwrap().problems, Vec::<String>::new());
    for (row, found) in [
        ("seats WHERE seat = 'A-1-7'", "the tables have 9 seats and 1 pools, the event has 10 and 1"),
        ("pools WHERE pool = 'floor'", "the tables have 9 seats and 0 pools, the event has 10 and 1"),
    ] {
        let connection = rusqlite::Connection::open(&path).unwrap();
        assert_eq!(connection.execute(&format!("DELETE FROM {row}"), []).unwrap(), 1);
        assert_eq!(check_file(&path).unwrap().problems, [format!("gala: {found}")]);
    }
}

#[tokio::test]
async fn a_check_sees_wrong_rows_also_while_the_tables_are_behind() {
    let folder = folder();
    let path = folder.path().join("a.db");
    let engine = open(&path);
    let venue = create_event(&engine, 1, 10).await;
    engine.execute(hold(&venue, 0, 60_000)).await.unwrap();
    until(|| check_file(&path).unwrap().behind == 0).await;
    engine.close().await;
    drop(engine);
    // As if the hold were not in the tables yet: its seat may look as it did before, and no other.
    let connection = rusqlite::Connection::open(&path).unwrap();
    let back = "UPDATE meta SET value = x'0100000000000000' WHERE name = 'floor'";
    assert_eq!(connection.execute(back, []).unwrap(), 1);
    connection.execute("UPDATE seats SET state = 'free', fence = 0 WHERE seat_no = 0", []).unwrap();
    let report = check_file(&path).unwrap();
    assert_eq!((report.behind, report.problems), (1, Vec::new()));
    connection.execute("UPDATE seats SET state = 'sold' WHERE seat_no = 7", []).unwrap();
    let problems = check_file(&path).unwrap().problems;
    assert!(problems.len() == 1 && problems[0].starts_with("seats: A-1-8 is sold"), "{problems:?}");
}

/// A backup of an engine's file in which every table has something, and all of it is in the tables.
async fn full_file(folder: &Path) -> std::path::PathBuf {
    let (path, copy) = (folder.join("a.db"), folder.join("copy.db"));
    let engine = open(&path);
    let venue = create_event(&engine, 1, 10).await;
    let sold = held(engine.execute(hold(&venue, 0, 60_000)).await.unwrap());
    let confirm = Command::ConfirmHold(ConfirmHold {
        hold: sold.id,
        booking: new_booking_id(),
        payment_ref: Some(Reference::parse("pay-1").unwrap()),
        order_ref: Some(Reference::parse("order-1").unwrap()),
        items: None,
    });
    let confirm = Request::new(confirm).with_secret(Some(engine.secret_of(sold.id)));
    engine.execute(confirm.with_key(Some(IdempotencyKey { scope: 1, fingerprint: 1 }))).await.unwrap();
    let block = Command::CreateBlock(CreateBlock {
        event: venue.number,
        id: new_block_id(),
        items: vec![ItemRequest::Seat(SeatNo(7))],
        reason: None,
    });
    engine.execute(Request::new(block)).await.unwrap();
    until(|| check_file(&path).unwrap().behind == 0).await;
    engine.backup(&copy).await.unwrap();
    assert_eq!(check_file(&copy).unwrap().problems, Vec::<String>::new());
    copy
}

/// A copy of a file in which this was done.
fn changed(file: &Path, name: &str, change: &str) -> std::path::PathBuf {
    let copy = file.with_file_name(name);
    std::fs::copy(file, &copy).unwrap();
    let changed = rusqlite::Connection::open(&copy).unwrap().execute(change, []).unwrap();
    assert!(changed > 0, "{change} changes nothing");
    copy
}

#[tokio::test]
async fn a_check_compares_all_that_the_tables_show_to_people() {
    let folder = folder();
    let file = full_file(folder.path()).await;
    let behind =
        changed(&file, "behind.db", "UPDATE meta SET value = x'0100000000000000' WHERE name = 'floor'");
    for (number, (change, found, may_be_behind)) in [
        ("bookings SET state = 'cancelled'", "bookings: ", true),
        ("bookings SET id = 'another'", "bookings: another is ", true),
        ("bookings SET event_no = 7", "bookings: ", true),
        ("bookings SET holder = 'another'", "bookings: ", true),
        ("bookings SET payment_ref = NULL", "bookings: ", true),
        ("bookings SET order_ref = 'order-2'", "bookings: ", true),
        ("holds SET state = 'held'", "holds: ", true),
        ("holds SET id = 'another'", "holds: another is ", true),
        ("holds SET event_no = 7", "holds: ", true),
        ("holds SET holder = 'another'", "holds: ", true),
        ("holds SET expires_at = expires_at + 1", "holds: ", true),
        ("payments SET state = 'refund_due'", "payments: pay-1 is ", true),
        ("payments SET payment_ref = 'pay-2'", "payments: pay-2 is ", false),
        ("blocks SET id = 'another'", "blocks: another is ", true),
        ("blocks SET event_no = 7", "blocks: ", true),
        ("events SET id = 'opera'", "events: opera is ", true),
        ("events SET name = 'Opera'", "events: gala is ", true),
        ("events SET state = 'closed'", "events: gala is ", true),
        ("events SET version = version - 1", "events: gala is ", true),
        ("seats SET seat = 'another' WHERE seat_no = 5", "seats: another is ", false),
        ("pools SET pool = 'another'", "pools: another has ", false),
        ("sales SET booking_no = 7", "sales: A-1-1 of gala is sold with booking ", false),
        ("answers SET answer = substr(answer, 1, 20)", "answers: row 1 cannot be read", false),
    ]
    .into_iter()
    .enumerate()
    {
        let change = format!("UPDATE {change}");
        let problems = check_file(&changed(&file, &format!("{number}.db"), &change)).unwrap().problems;
        assert!(problems.iter().any(|problem| problem.starts_with(found)), "{change}: {problems:?}");
        // While the tables are behind, what has changed since may look as it did before, and nothing else.
        let problems =
            check_file(&changed(&behind, &format!("behind-{number}.db"), &change)).unwrap().problems;
        assert_eq!(problems.is_empty(), may_be_behind, "{change}: {problems:?}");
    }
}

#[tokio::test]
async fn a_gap_in_the_journal_is_damage_also_where_the_tables_have_what_was_in_it() {
    let folder = folder();
    let file = full_file(folder.path()).await;
    let entry = "DELETE FROM journal WHERE last_seq =";
    for (number, missing) in [("2", 2), ("(SELECT max(last_seq) FROM journal)", 4)] {
        let path = changed(&file, &format!("{missing}.db"), &format!("{entry} {number}"));
        let missing = format!("journal entry {missing} is missing");
        assert_eq!(check_file(&path).unwrap().problems, [missing.as_str()]);
        let error = EmbeddedEngine::open(EmbeddedOptions::new(&path)).unwrap_err();
        assert!(matches!(&error, OpenError::Damaged { what, .. } if *what == missing), "{error}");
    }
    let oldest = changed(&file, "oldest.db", &format!("{entry} 1"));
    assert_eq!(check_file(&oldest).unwrap().problems, Vec::<String>::new());
}

#[tokio::test]
async fn what_waits_for_an_operator_and_for_the_tables_is_counted() {
    let folder = folder();
    let start = Clock::system().now();
    let clock = Clock::manual(start);
    let options = EmbeddedOptions::new(folder.path().join("a.db")).clock(clock.clone());
    let engine = EmbeddedEngine::open(options).unwrap();
    let venue = create_event(&engine, 1, 1).await;
    let policy = PolicyPatch { at_payment_deadline: Some(AtPaymentDeadline::Keep), ..PolicyPatch::default() };
    let patch = EventPatch { policy: Some(policy), ..EventPatch::default() };
    let keep = Command::UpdateEvent(UpdateEvent { event: venue.number, patch });
    engine.execute(Request::new(keep)).await.unwrap();
    let kept = held(engine.execute(hold(&venue, 0, 60_000)).await.unwrap());
    let reference = Reference::parse("pay-1").unwrap();
    let begin = BeginPayment { hold: kept.id, reference, max_wait: Some(Millis(10_000)) };
    let secret = Some(engine.secret_of(kept.id));
    engine.execute(Request::new(Command::BeginPayment(begin)).with_secret(secret)).await.unwrap();
    let meters = engine.meters();
    until(|| meters.tables_behind.get() == 0).await;
    assert_eq!((meters.holds_overdue.get(), meters.revoked.get()), (0, 0));
    clock.set(start.after(Millis(10_000)));
    until(|| meters.holds_overdue.get() == 1).await;
    engine.execute(Request::new(Command::RevokeHold(kept.id, None))).await.unwrap();
    until(|| meters.holds_overdue.get() == 0 && meters.revoked.get() == 1).await;
}
