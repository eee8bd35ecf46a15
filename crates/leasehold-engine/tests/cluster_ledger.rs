//! What one server does with the ledger: in which call, by which time, at what cost, and what it survives.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::*;
use leasehold_engine::*;
use leasehold_testkit::engine_suite::*;
use leasehold_testkit::servers::Postgres;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// A ledger, and a server on it that writes on one connection.
struct Bench {
    server: Postgres,
    key: SecretKey,
    engine: Arc<ClusterEngine>,
    looks: Client,
}

/// An event that nobody can change until this is let go.
struct Locked(Client);

impl Bench {
    async fn start() -> Self {
        let (server, key) = (Postgres::start(), SecretKey::random());
        let options = ClusterOptions::new(server.url(), key.clone()).writers(1);
        let engine = Arc::new(ClusterEngine::open(options).await.expect("the ledger opens"));
        let looks = server.client().await;
        Self { server, key, engine, looks }
    }

    async fn number(&self, sql: &str) -> i64 {
        self.looks.query_one(sql, &[]).await.expect("a number").get(0)
    }

    async fn run(&self, sql: &str) {
        self.looks.batch_execute(sql).await.expect("a statement");
    }

    fn ask(&self, request: Request) -> JoinHandle<Result<Done, EngineError>> {
        let engine = Arc::clone(&self.engine);
        tokio::spawn(async move { engine.execute(request).await })
    }

    async fn lock(&self, venue: &Venue) -> Locked {
        let client = self.server.client().await;
        let lock = format!("BEGIN; SELECT 1 FROM leasehold.events WHERE no = {} FOR UPDATE", venue.number.0);
        client.batch_execute(&lock).await.expect("the lock");
        Locked(client)
    }

    /// Until the only worker waits for an event that somebody keeps locked.
    async fn worker_waits(&self) {
        let waits = "SELECT count(*) FROM pg_stat_activity
                     WHERE application_name = 'leasehold' AND wait_event_type = 'Lock'";
        until("the worker waits", async || self.number(waits).await == 1).await;
    }

    /// The answers to requests that are carried out in this order, as one batch: they queue while the only worker waits.
    async fn together(&self, venue: &Venue, requests: Vec<Request>) -> Vec<Result<Done, EngineError>> {
        let locked = self.lock(venue).await;
        let first = self.ask(hold_units(venue, 1, LONG_MS));
        self.worker_waits().await;
        let mut asked = Vec::new();
        for request in requests {
            asked.push(self.ask(request));
            let queued = || self.engine.meters().queue_depth.get();
            until("it has queued, in order", async || queued() == asked.len() as i64).await;
        }
        locked.0.batch_execute("COMMIT").await.expect("the lock is let go");
        first.await.unwrap().expect("the first hold");
        let mut answers = Vec::new();
        for task in asked {
            answers.push(task.await.unwrap());
        }
        answers
    }

    async fn finish(self) {
        let report = check_ledger(&self.server.url()).await.expect("the ledger can be checked");
        assert_eq!(report.problems, Vec::<String>::new());
        self.engine.close().await;
    }
}

fn is_unavailable(answer: &Result<Done, EngineError>) -> bool {
    matches!(answer, Err(EngineError::Unavailable))
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_holds_are_decided_by_the_ledger_itself_and_losers_in_the_same_call() {
    let bench = Bench::start().await;
    let venue = create_event(&*bench.engine, 1, 50).await;
    // Ten callers for each of nine seats, and as many units as seats: a loser's unit is there for the next.
    let ask = |caller: u32| {
        let items = vec![ItemRequest::Pool(PoolNo(0), 1), ItemRequest::Seat(SeatNo(caller % 9))];
        hold_items(&venue, items, LONG_MS).with_key(key(u128::from(caller) + 1, 1))
    };
    let mut granted = 0;
    for answer in bench.together(&venue, (0..90).map(ask).collect()).await {
        match answer {
            Ok(_) => granted += 1,
            Err(EngineError::Refused(Refusal::SeatsTaken(seats))) => assert_eq!(seats.len(), 1),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(granted, 9);
    // Only the ledger's own call leaves the number beside the answer.
    assert_eq!(bench.number("SELECT count(*) FROM leasehold.answers WHERE number IS NOT NULL").await, 9);
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_comes_twice_in_one_batch_has_one_effect_and_costs_its_neighbours_nothing() {
    let bench = Bench::start().await;
    let venue = create_event(&*bench.engine, 1, 10).await;
    let twice = key(1, 1);
    let requests = vec![
        hold_seat(&venue, 0, LONG_MS).with_key(twice),
        hold_seat(&venue, 0, LONG_MS).with_key(twice),
        hold_seat(&venue, 1, LONG_MS).with_key(key(2, 1)),
    ];
    let answers = bench.together(&venue, requests).await;
    let granted = answers[0].as_ref().expect("the first");
    assert!(!granted.replayed);
    match &answers[1] {
        Ok(done) => assert!(done.replayed && done.outcome == granted.outcome, "{done:?}"),
        Err(error) => assert!(matches!(error, EngineError::InFlight), "{error:?}"),
    }
    assert!(answers[2].as_ref().is_ok_and(|done| !done.replayed));
    let by_ledger = "SELECT count(*) FROM leasehold.answers WHERE number IS NOT NULL";
    assert_eq!(bench.number(by_ledger).await, 2, "the batch was not taken apart");
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_sales_are_decided_by_the_ledger_itself_and_the_first_answer_stays_the_answer() {
    let bench = Bench::start().await;
    let venue = create_event(&*bench.engine, 1, 50).await;
    let mut holds = Vec::new();
    for seat in 0..4 {
        let items = vec![ItemRequest::Seat(SeatNo(seat)), ItemRequest::Pool(PoolNo(0), 2)];
        holds.push(held(bench.ask(hold_items(&venue, items, LONG_MS)).await.unwrap()));
    }
    let begin = BeginPayment { hold: holds[1].id, reference: reference("pay-1"), max_wait: None };
    let begin = by_owner(&*bench.engine, holds[1].id, Command::BeginPayment(begin));
    bench.ask(begin).await.unwrap().unwrap();
    let sale = |hold: usize, payment: Option<&str>, scope| {
        confirm(&*bench.engine, holds[hold].id, payment).with_key(key(scope, 1))
    };
    let again = sale(0, None, 1).command;
    let requests = vec![
        Request::new(again.clone())
            .with_key(key(1, 1))
            .with_secret(Some(bench.engine.secret_of(holds[0].id))),
        sale(1, Some("pay-1"), 2),
        sale(2, Some("pay-2"), 3),
        // The same hold once more, with another payment, and somebody else's payment.
        sale(2, Some("pay-3"), 4),
        sale(3, Some("pay-2"), 5),
    ];
    let answers = bench.together(&venue, requests).await;
    for (place, answer) in answers.iter().enumerate() {
        match (place, answer.as_ref().map(|done| &done.outcome)) {
            (0..=2, Ok(Outcome::Booking(sale))) => {
                assert_eq!((sale.hold, &sale.items), (holds[place].id, &holds[place].items));
            }
            (3, Ok(Outcome::RefundDue(payment))) => assert_eq!(*payment, reference("pay-3")),
            (4, Err(EngineError::Refused(Refusal::PaymentRefUsed))) => {}
            other => panic!("{other:?}"),
        }
    }
    // Only the ledger's own call leaves the booking beside the answer.
    assert_eq!(bench.number("SELECT count(*) FROM leasehold.answers WHERE booking IS NOT NULL").await, 3);
    let summary = bench.engine.event(&venue).await.unwrap();
    assert_eq!((summary.counts.sold, summary.counts.held), (3, 1));
    assert_eq!((summary.pools[0].sold, summary.pools[0].held), (6, 3));

    let first = answers[0].as_ref().unwrap();
    let Outcome::Booking(booking) = &first.outcome else { panic!("a sale") };
    let cancel = Request::new(Command::CancelBooking(CancelBooking { booking: booking.id }));
    bench.ask(cancel).await.unwrap().unwrap();
    let secret = Some(bench.engine.secret_of(holds[0].id));
    let repeated =
        bench.ask(Request::new(again).with_key(key(1, 1)).with_secret(secret)).await.unwrap().unwrap();
    assert!(repeated.replayed && repeated.outcome == first.outcome, "{repeated:?}");
    let known = bench.engine.remembered(holds[0].id, secret, key(1, 1).unwrap()).await.unwrap().unwrap();
    assert_eq!(known.outcome, first.outcome);
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_time_is_ahead_takes_no_other_event_along() {
    let bench = Bench::start().await;
    let ahead = create_event(&*bench.engine, 1, 10).await;
    let right = create_event_with(&*bench.engine, "right", 1, 10, Policy::default()).await;
    // As after a clock that was an hour fast and was set right.
    bench.run("UPDATE leasehold.events SET last_at = last_at + 3600000 WHERE id = 'gala'").await;
    let before = bench.engine.now();
    let hour = Millis(3_500_000);
    let is_ahead = |answer: &Result<Done, EngineError>| answer.as_ref().unwrap().at > before.after(hour);
    let both = vec![hold_seat(&ahead, 0, LONG_MS), hold_seat(&right, 0, LONG_MS)];
    let answers = bench.together(&right, both).await;
    assert_eq!(answers.iter().map(is_ahead).collect::<Vec<_>>(), [true, false], "{answers:?}");
    let releases = answers.into_iter().map(|answer| release(&*bench.engine, held(answer).id)).collect();
    let answers = bench.together(&right, releases).await;
    assert_eq!(answers.iter().map(is_ahead).collect::<Vec<_>>(), [true, false], "{answers:?}");
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_an_event_that_stays_locked_are_told_to_come_back_and_others_are_served() {
    let bench = Bench::start().await;
    let [first, stuck, other] = [1, 2, 3].map(|number| format!("event-{number}"));
    let first = create_event_with(&*bench.engine, &first, 1, 10, Policy::default()).await;
    let stuck = create_event_with(&*bench.engine, &stuck, 4, 10, Policy::default()).await;
    let other = create_event_with(&*bench.engine, &other, 4, 10, Policy::default()).await;
    let mut holds = Vec::new();
    for (turn, venue) in [(0, &stuck), (0, &other), (1, &stuck), (1, &other)] {
        holds.push(held(bench.ask(hold_seat(venue, 10 + turn, LONG_MS)).await.unwrap()).id);
    }
    let locked = bench.lock(&stuck).await;
    // Batches that are of both events: holds and what the rules decide, then holds and sales.
    for turn in 0..2 {
        let act = |hold: &HoldId| match turn {
            0 => release(&*bench.engine, *hold),
            _ => confirm(&*bench.engine, *hold, None),
        };
        let mut requests = vec![hold_seat(&stuck, turn, LONG_MS), hold_seat(&other, turn, LONG_MS)];
        requests.extend(holds[turn as usize * 2..][..2].iter().map(act));
        let answers = bench.together(&first, requests).await;
        for (place, answer) in answers.iter().enumerate() {
            match place % 2 {
                0 => assert!(matches!(answer, Err(EngineError::Overloaded)), "of the locked one: {answer:?}"),
                _ => assert!(answer.is_ok(), "of the other: {answer:?}"),
            }
        }
    }
    locked.0.batch_execute("COMMIT").await.unwrap();
    until("the event is tried again", async || {
        bench.ask(hold_seat(&stuck, 2, LONG_MS)).await.unwrap().is_ok()
    })
    .await;
    bench.finish().await;
}

/// The ledger says that it gave up: nothing is in doubt then, and a request without a key can be sent again.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_ledger_cancelled_did_not_happen() {
    let bench = Bench::start().await;
    let venue = create_event(&*bench.engine, 2, 10).await;
    let hold = held(bench.ask(hold_seat(&venue, 0, LONG_MS)).await.unwrap()).id;
    let locked = bench.lock(&venue).await;
    // A sale that the database decides, and a release that the rules do.
    for request in [confirm(&*bench.engine, hold, None), release(&*bench.engine, hold)] {
        // The last one is remembered for a second as locked.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let asked = bench.ask(request);
        bench.worker_waits().await;
        let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
                      WHERE application_name = 'leasehold' AND wait_event_type = 'Lock'";
        assert_eq!(bench.number(cancel).await, 1);
        let answer = asked.await.unwrap();
        assert!(matches!(answer, Err(EngineError::Overloaded)), "{answer:?}");
    }
    locked.0.batch_execute("COMMIT").await.unwrap();
    until("it is sold after all", async || {
        bench.ask(confirm(&*bench.engine, hold, None)).await.unwrap().is_ok()
    })
    .await;
    bench.finish().await;
}

/// However many ask for it, by its name or by the ids of their holds: the other events' callers do not wait behind them.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_stays_locked_does_not_keep_all_workers_from_the_others() {
    const CALLERS: u32 = 24;
    const WINDOW: Duration = Duration::from_secs(8);
    let bench = Bench::start().await;
    let stuck = create_event_with(&*bench.engine, "stuck", 4, 10, Policy::default()).await;
    let other = create_event_with(&*bench.engine, "other", 4, 10, Policy::default()).await;
    let options = ClusterOptions::new(bench.server.url(), bench.key.clone());
    let engine = Arc::new(ClusterEngine::open(options).await.expect("three workers"));
    let mut holds = Vec::new();
    for seat in 0..CALLERS {
        holds.push(held(engine.execute(hold_seat(&stuck, seat, LONG_MS)).await).id);
    }
    let locked = bench.lock(&stuck).await;
    let begun = Instant::now();
    let callers = holds.into_iter().map(|hold| {
        let (engine, stuck) = (Arc::clone(&engine), Arc::clone(&stuck));
        tokio::spawn(async move {
            let mut told = 0;
            while begun.elapsed() < WINDOW {
                let request = match told % 2 {
                    0 => confirm(&*engine, hold, None),
                    _ => hold_seat(&stuck, CALLERS + 1, LONG_MS),
                };
                let answer = engine.execute(request).await;
                assert!(matches!(answer, Err(EngineError::Overloaded)), "{answer:?}");
                told += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            told
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut served = 0;
    while begun.elapsed() < WINDOW {
        let hold = held(engine.execute(hold_seat(&other, 0, LONG_MS)).await);
        engine.execute(release(&*engine, hold.id)).await.expect("it is not locked");
        served += 2;
    }
    let mut told = 0;
    for caller in callers {
        told += caller.await.unwrap();
    }
    println!("{served} of the other event were served, {told} of the locked one told to come back");
    assert!(served >= 40, "{served} were served in {WINDOW:?}");
    assert!(told > 10 * CALLERS, "{told} were told");
    locked.0.batch_execute("COMMIT").await.unwrap();
    until("the event is tried again", async || {
        engine.execute(hold_seat(&stuck, CALLERS + 2, LONG_MS)).await.is_ok()
    })
    .await;
    engine.close().await;
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_lost_its_last_transaction_is_read_again() {
    let bench = Bench::start().await;
    let venue = create_event(&*bench.engine, 2, 10).await;
    let lost = held(bench.ask(hold_seat(&venue, 0, LONG_MS)).await.unwrap());
    bench.ask(confirm(&*bench.engine, lost.id, None)).await.unwrap().unwrap();
    let is_sold = || bench.engine.gate(&venue, &[ItemRequest::Seat(SeatNo(0))]).is_some();
    assert!(is_sold());
    let shown = async || match bench.engine.availability(&venue, Since::Nothing).await.unwrap() {
        Availability::Full(snapshot) => snapshot,
        other => panic!("{other:?}"),
    };
    let before = shown().await;
    assert_eq!((before.summary.version.number, before.seats[0]), (3, SeatStatus::Sold));
    // As on a standby that was promoted before the hold and its sale had reached it.
    bench
        .run(
            "BEGIN; DELETE FROM leasehold.log WHERE version > 1; DELETE FROM leasehold.holds;
             DELETE FROM leasehold.bookings; DELETE FROM leasehold.sales; DELETE FROM leasehold.seats;
             UPDATE leasehold.events SET version = 1, seats_free = 20, seats_held = 0, seats_sold = 0; COMMIT",
        )
        .await;
    until("the seat is free again", async || !is_sold()).await;
    // The versions of what was lost are given out again. What was shown with them is not.
    held(bench.ask(hold_seat(&venue, 5, LONG_MS)).await.unwrap());
    held(bench.ask(hold_seat(&venue, 0, LONG_MS)).await.unwrap());
    let after = shown().await;
    assert_eq!(after.summary.version, before.summary.version);
    assert_eq!((after.seats[0], after.seats[5]), (SeatStatus::Held, SeatStatus::Held));
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_the_rules_stumble_over_fails_alone_and_the_server_goes_on() {
    let bench = Bench::start().await;
    let venue = create_event(&*bench.engine, 1, 10).await;
    let damaged = held(bench.ask(hold_units(&venue, 3, LONG_MS)).await.unwrap());
    let sound = held(bench.ask(hold_seat(&venue, 1, LONG_MS)).await.unwrap());
    // More units than are held of the pool cannot be given back.
    bench.run("UPDATE leasehold.pools SET held = 1").await;
    let requests = vec![release(&*bench.engine, damaged.id), release(&*bench.engine, sound.id)];
    let answers = bench.together(&venue, requests).await;
    assert!(is_unavailable(&answers[0]), "{:?}", answers[0]);
    assert!(answers[1].is_ok(), "{:?}", answers[1]);
    held(bench.ask(hold_seat(&venue, 2, LONG_MS)).await.unwrap());
    assert!(bench.engine.is_ready());
    bench.engine.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_an_earlier_epoch_writes_nothing_more_and_says_that_it_is_not_ready() {
    let bench = Bench::start().await;
    let venue = create_event(&*bench.engine, 1, 10).await;
    let before = held(bench.ask(hold_seat(&venue, 0, LONG_MS)).await.unwrap());
    // What whoever restores a backup does; the connections of before are gone with the restored server.
    bench.run("UPDATE leasehold.ledger SET epoch = epoch + 1024").await;
    bench
        .run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ~ '^leasehold(/|$)'",
        )
        .await;
    let refused = bench.ask(hold_seat(&venue, 1, LONG_MS)).await.unwrap();
    assert!(is_unavailable(&refused) || matches!(refused, Err(EngineError::Unknown)), "{refused:?}");
    let refused = bench.ask(hold_seat(&venue, 1, LONG_MS)).await.unwrap();
    assert!(is_unavailable(&refused), "{refused:?}");
    assert!(!bench.engine.is_ready());
    bench.engine.close().await;

    let options = ClusterOptions::new(bench.server.url(), bench.key.clone());
    let engine = ClusterEngine::open(options).await.unwrap();
    let after = held(engine.execute(hold_seat(&venue, 1, LONG_MS)).await);
    let fence = |hold: &Hold| match hold.items[..] {
        [Item::Seat { fence, .. }] => fence,
        _ => panic!("{hold:?}"),
    };
    assert!(fence(&after) > fence(&before), "{after:?}");
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_needs_no_right_to_create_anything_once_the_ledger_is_there() {
    let bench = Bench::start().await;
    bench
        .run(
            "CREATE ROLE clerk LOGIN;
             GRANT USAGE ON SCHEMA leasehold TO clerk;
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO clerk",
        )
        .await;
    let url = format!("postgres://clerk@{}/postgres", bench.server.address());
    let engine = ClusterEngine::open(ClusterOptions::new(url, bench.key.clone())).await.unwrap();
    let venue = create_event(&engine, 1, 10).await;
    let hold = held(engine.execute(hold_seat(&venue, 0, LONG_MS)).await);
    engine.execute(confirm(&engine, hold.id, None)).await.unwrap();
    engine.close().await;
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_old_is_trimmed_in_pieces_and_the_log_keeps_its_end() {
    let bench = Bench::start().await;
    let venue = create_event(&*bench.engine, 1, 10).await;
    for seat in 0..10 {
        let request = hold_seat(&venue, seat, LONG_MS).with_key(key(u128::from(seat) + 1, 1));
        let hold = held(bench.ask(request).await.unwrap());
        bench.ask(release(&*bench.engine, hold.id)).await.unwrap().unwrap();
    }
    // 21 entries and 10 answers; 5 and 3 stay.
    let mut gone = Vec::new();
    while gone.last() != Some(&0) {
        gone.push(bench.number("SELECT leasehold.trim_v1(5, 86400000, 3, 6)::bigint").await);
    }
    assert_eq!(gone.iter().sum::<i64>(), 16 + 7, "{gone:?}");
    assert!(gone.len() > 3, "in pieces: {gone:?}");
    assert_eq!(bench.number("SELECT min(version) FROM leasehold.log").await, 17);
    assert_eq!(bench.number("SELECT count(*) FROM leasehold.answers").await, 3);
    let forgotten = "SELECT leasehold.forget_v1(0::smallint, 86400000, 4, 100)::bigint";
    assert_eq!(bench.number(forgotten).await, 6);
    assert_eq!(bench.number("SELECT count(*) FROM leasehold.holds").await, 4);
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_sweeps_look_at_what_they_are_about_and_not_through_whole_tables() {
    const ROWS: i64 = 5_000;
    let bench = Bench::start().await;
    let venue = create_event(&*bench.engine, 1, 40).await;
    // Sales of long ago, and holds that have an hour to live.
    bench
        .run(&format!(
            "INSERT INTO leasehold.bookings (id, event_no, number, hold, cancelled, items, revived, booked_at)
             SELECT gen_random_uuid(), 0, 1, gen_random_uuid(), true, '{{}}', false, 1
                 FROM generate_series(1, {ROWS});
             INSERT INTO leasehold.holds (id, event_no, number, state, version, extends, items, created_at,
                 expires_at, hard_deadline, life_end, live_until)
             SELECT gen_random_uuid(), 0, 1, 0, 1, 0, '{{}}', 1, later, later, later, later
                 FROM generate_series(1, {ROWS}), (SELECT leasehold.now_ms() + 3600000 AS later) AS hour;
             ANALYZE leasehold.bookings; ANALYZE leasehold.holds"
        ))
        .await;
    let reads = "SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::bigint
                 FROM pg_stat_user_tables WHERE schemaname = 'leasehold' AND relname IN ('bookings', 'holds')";
    for seat in 0..20 {
        let hold = held(bench.ask(hold_seat(&venue, seat, LONG_MS)).await.unwrap());
        bench.ask(confirm(&*bench.engine, hold.id, Some(&format!("pay-{seat}")))).await.unwrap().unwrap();
    }
    // A sweep or two.
    tokio::time::sleep(Duration::from_millis(600)).await;
    bench.engine.close().await;
    // Whoever has read says so when it goes.
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name ~ '^leasehold(/|$)'";
    until("all connections are closed", async || bench.number(sessions).await == 0).await;
    let read = bench.number(reads).await;
    assert!(read < ROWS, "{read} rows were read for 40 commands");
    assert!(read > 0, "nothing was counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_with_tens_of_thousands_of_holds_is_closed() {
    const HOLDS: i64 = 60_000;
    let bench = Bench::start().await;
    let create = Command::CreateEvent(CreateEvent {
        id: Name::parse("gala").unwrap(),
        name: Text::parse("Gala").unwrap(),
        layout: Arc::default(),
        pools: vec![(Name::parse("floor").unwrap(), HOLDS as u32 + 1)],
        policy: Policy::default(),
    });
    let venue = bench.ask(Request::new(create)).await.unwrap().unwrap().venue;
    held(bench.ask(hold_units(&venue, 1, LONG_MS * 10)).await.unwrap());
    // As many as it, which a test has no time to ask for one by one.
    bench
        .run(&format!(
            "INSERT INTO leasehold.holds (id, event_no, number, state, version, extends, items, created_at,
                 expires_at, hard_deadline, life_end, live_until)
             SELECT gen_random_uuid(), event_no, number + more, state, version, extends, items, created_at,
                 expires_at, hard_deadline, life_end, live_until
                 FROM leasehold.holds, generate_series(1, {HOLDS}) AS more;
             INSERT INTO leasehold.log (event_no, version, at, kind, subject)
             SELECT 0, number, created_at, 4, id FROM leasehold.holds WHERE number > 2;
             UPDATE leasehold.pools SET held = held + {HOLDS};
             UPDATE leasehold.events SET version = version + {HOLDS};
             ANALYZE"
        ))
        .await;
    let patch = EventPatch { open: Some(false), ..EventPatch::default() };
    let close = Request::new(Command::UpdateEvent(UpdateEvent { event: venue.number, patch }));
    let closed = bench.ask(close).await.unwrap().unwrap().outcome;
    let Outcome::Event(summary) = closed else { panic!("{closed:?}") };
    assert_eq!((summary.state, summary.pools[0].held), (EventState::Closed, 0));
    bench.finish().await;
}

/// Everything that a call can have written, without the places in lists, which a rolled back call uses up too.
const WRITTEN: &str = "SELECT concat_ws(chr(10),
    (SELECT json_agg(to_jsonb(row) - 'place' ORDER BY id) FROM leasehold.holds AS row),
    (SELECT json_agg(row ORDER BY seat_no) FROM leasehold.seats AS row),
    (SELECT json_agg(row ORDER BY pool_no) FROM leasehold.pools AS row),
    (SELECT json_agg(row ORDER BY version) FROM leasehold.log AS row),
    (SELECT json_agg(row ORDER BY scope) FROM leasehold.answers AS row),
    (SELECT json_agg(row) FROM leasehold.events AS row))";

/// What each of several holds asks for.
#[derive(Debug, Clone, Copy)]
enum Each<'a> {
    Seats(&'a [i32]),
    /// Of the only pool.
    Units(&'a [i32]),
}

/// A call for these holds, the first with a key, as SQL.
fn call_for(function: &str, venue: &Venue, asked: Each<'_>) -> String {
    let (seats, units) = match asked {
        Each::Seats(seats) => (seats, &[][..]),
        Each::Units(units) => (&[][..], units),
    };
    let holds = seats.len() + units.len();
    let some =
        |count: usize, text: &dyn Fn(usize) -> String| (0..count).map(text).collect::<Vec<_>>().join(", ");
    let each = |text: &dyn Fn(usize) -> String| some(holds, text);
    let place = |place: usize| (place + 1).to_string();
    let id = |place: usize| format!("'00000000-0000-7000-8000-{:012}'::uuid", place + 1);
    format!(
        "SELECT json_agg(row ORDER BY place)::text FROM leasehold.{function}(
            ARRAY[{ids}], ARRAY[{events}], ARRAY[{rules}]::bigint[], ARRAY[{holders}]::text[], ARRAY[{ttls}]::bigint[],
            ARRAY[{scopes}]::uuid[], ARRAY[{scopes}]::uuid[], ARRAY[{answers}]::bytea[],
            ARRAY[{seat_places}]::integer[], ARRAY{seats:?}::integer[],
            ARRAY[{pool_places}]::integer[], ARRAY[{pools}]::integer[], ARRAY{units:?}::integer[], 7) AS row",
        ids = each(&id),
        events = each(&|_| venue.number.0.to_string()),
        rules = each(&|_| "1".to_owned()),
        holders = each(&|place| if place == 1 { "'ada'" } else { "NULL" }.to_owned()),
        ttls = each(&|place| (60_000 + place).to_string()),
        scopes = each(&|place| if place == 0 { id(99) } else { "NULL".to_owned() }),
        answers = each(&|place| if place == 0 { "'\\x01'" } else { "NULL" }.to_owned()),
        seat_places = some(seats.len(), &place),
        pool_places = some(units.len(), &place),
        pools = some(units.len(), &|_| "0".to_owned()),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_short_way_to_plain_holds_leads_where_the_long_one_does() {
    let bench = Bench::start().await;
    let venue = create_event(&*bench.engine, 1, 20).await;
    // A seat that was held before has a row and a fence; one is held now.
    let before = held(bench.ask(hold_seat(&venue, 3, LONG_MS)).await.unwrap());
    bench.ask(release(&*bench.engine, before.id)).await.unwrap().unwrap();
    held(bench.ask(hold_seat(&venue, 9, LONG_MS)).await.unwrap());
    held(bench.ask(hold_units(&venue, 2, LONG_MS)).await.unwrap());

    let still = "BEGIN; CREATE OR REPLACE FUNCTION leasehold.now_ms() RETURNS bigint LANGUAGE sql AS
        'SELECT 4000000000000::bigint'";
    let (gone, back) = ("ALTER FUNCTION leasehold.hold_v1 RENAME TO gone", "ROLLBACK");
    let plain =
        [Each::Seats(&[0, 1, 2]), Each::Seats(&[5, 3, 4]), Each::Seats(&[7]), Each::Units(&[2, 1, 5])];
    for asked in plain {
        let mut found = Vec::new();
        for (function, prepare) in [("hold_v1", ""), ("hold_v2", gone)] {
            bench.run(&format!("{still}; {prepare}")).await;
            let call = call_for(function, &venue, asked);
            let answered: String = bench.looks.query_one(&call, &[]).await.expect("a verdict").get(0);
            let written: String = bench.looks.query_one(WRITTEN, &[]).await.expect("rows").get(0);
            bench.run(back).await;
            assert!(!answered.contains("\"verdict\":1") && !answered.contains("\"verdict\":2"), "{answered}");
            found.push((answered, written));
        }
        assert_eq!(found[0], found[1], "{asked:?}");
    }
    // A seat that is taken, one that two want, and more units than there are: the long way decides, which is not there.
    let others = [(Each::Seats(&[8, 9]), 1), (Each::Seats(&[6, 6]), 1), (Each::Units(&[7, 2]), 2)];
    for (asked, verdict) in others {
        let call = call_for("hold_v2", &venue, asked);
        bench.run(&format!("{still}; {gone}")).await;
        let missing = bench.looks.query_one(&call, &[]).await;
        assert!(missing.expect_err("hold_v1 is gone").as_db_error().unwrap().message().contains("hold_v1"));
        bench.run(back).await;
        bench.run("BEGIN").await;
        let answered: String = bench.looks.query_one(&call, &[]).await.expect("a verdict").get(0);
        bench.run(back).await;
        let has = |verdict: i32| answered.contains(&format!("\"verdict\":{verdict}"));
        assert!(has(0) && has(verdict), "{answered}");
    }
    // And what was asked before, a key that was used before or is used twice, and rules that are not those of now.
    let asked = call_for("hold_v2", &venue, Each::Seats(&[10, 11]));
    let first = call_for("hold_v2", &venue, Each::Seats(&[12, 13]));
    let other_ids =
        asked.replace("-000000000001'", "-000000000011'").replace("-000000000002'", "-000000000012'");
    let key_twice = asked.replace(", NULL]::uuid[]", ", '00000000-0000-7000-8000-000000000100']::uuid[]");
    let other_rules = asked.replace("ARRAY[1, 1]::bigint[]", "ARRAY[1, 2]::bigint[]");
    let before = [(&*first, &asked), (&first, &other_ids), ("", &key_twice), ("", &other_rules)];
    for (first, call) in before {
        bench.run(&format!("{still}; {first}; {gone}")).await;
        let missing = bench.looks.query_one(call, &[]).await;
        assert!(missing.expect_err(call).as_db_error().unwrap().message().contains("hold_v1"));
        bench.run(back).await;
    }
    bench.finish().await;
}

/// Whoever asks a ledger that stands still waits for one attempt to reach it, however many ask: readers do not try one
/// after the other, and whoever stands behind a worker that waits is turned away before that one knows.
#[tokio::test(flavor = "multi_thread")]
async fn however_many_ask_a_ledger_that_stands_still_nobody_waits_for_the_others() {
    const ASKING: u128 = 30;
    /// A call, one more in doubt, and a new connection. One attempt after the other would take minutes.
    const TOLD_WITHIN: Duration = Duration::from_secs(25);
    let mut bench = Bench::start().await;
    let venue = create_event(&*bench.engine, 1, 10).await;
    let held = held(bench.ask(hold_seat(&venue, 0, LONG_MS)).await.unwrap());
    let locked = bench.lock(&venue).await;
    let write = |bench: &Bench, scope| {
        let told = bench.ask(hold_units(&venue, 1, LONG_MS).with_key(key(scope, 1)));
        tokio::spawn(async move { (told.await.unwrap(), Instant::now()) })
    };
    let first = write(&bench, 1);
    bench.worker_waits().await;
    bench.server.pause();
    let began = Instant::now();
    let behind: Vec<_> = (2..ASKING).map(|scope| write(&bench, scope)).collect();
    // Somebody is gone before it is turned away.
    let gone = bench.ask(hold_seat(&venue, 1, LONG_MS));
    tokio::time::sleep(Duration::from_millis(100)).await;
    gone.abort();
    // Nobody has read from it so far, so there is no connection to do so.
    let readers: Vec<_> = (0..ASKING)
        .map(|_| {
            let engine = Arc::clone(&bench.engine);
            tokio::spawn(async move { engine.hold(held.id, Some(engine.secret_of(held.id))).await })
        })
        .collect();
    for reader in readers {
        let told = reader.await.unwrap();
        assert!(matches!(told, Err(EngineError::Unavailable)), "{told:?}");
    }
    println!("readers were told after {:?}", began.elapsed());
    let (told, first) = first.await.unwrap();
    assert!(matches!(told, Err(EngineError::Unknown)), "{told:?}");
    for writer in behind {
        let (told, after) = writer.await.unwrap();
        assert!(matches!(told, Err(EngineError::Overloaded)), "{told:?}");
        assert!(after < first, "it was told {:?} after the first", after - first);
    }
    assert!(began.elapsed() < TOLD_WITHIN, "{:?}", began.elapsed());
    bench.server.resume();
    drop(locked);
    let next = async || bench.ask(hold_seat(&venue, 1, LONG_MS)).await.unwrap();
    until("the seat is had, and was not kept for whoever was gone", async || match next().await {
        Ok(_) => true,
        Err(EngineError::Refused(refusal)) => panic!("{refusal:?}"),
        Err(_) => false,
    })
    .await;
    bench.finish().await;
}
