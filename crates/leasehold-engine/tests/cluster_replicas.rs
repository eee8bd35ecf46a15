//! Several servers on one ledger, and what can go wrong between them and it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::*;
use leasehold_engine::*;
use leasehold_testkit::Random;
use leasehold_testkit::engine_suite::*;
use leasehold_testkit::servers::{Direction, FaultProxy, Postgres};
use tokio::task::JoinSet;
use tokio_postgres::Client;

async fn open(url: &str, key: &SecretKey) -> Arc<ClusterEngine> {
    let options = ClusterOptions::new(url, key.clone());
    Arc::new(ClusterEngine::open(options).await.expect("the ledger opens"))
}

fn through(proxy: &FaultProxy) -> String {
    format!("postgres://postgres@{}/postgres", proxy.address())
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect("a number").get(0)
}

async fn assert_sound(server: &Postgres) {
    let report = check_ledger(&server.url()).await.expect("the ledger can be checked");
    assert_eq!(report.problems, Vec::<String>::new());
}

/// All versions from `since` to `last`, as a reader on this server gets them.
async fn versions(engine: &dyn Engine, venue: &Venue, since: Version, last: u64) -> Vec<u64> {
    let mut stream = engine.subscribe(venue, Since::Version(since)).await.unwrap();
    let mut seen = Vec::new();
    while seen.last() != Some(&last) {
        match tokio::time::timeout(PATIENCE, stream.next()).await.expect("a step") {
            StreamStep::Changes(changes) => seen.extend(changes.iter().map(|change| change.version.number)),
            other => panic!("{other:?} after {seen:?}"),
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_sell_three_seats_and_a_pool_exactly_once_and_both_show_every_change() {
    const CALLERS: usize = 64;
    let seed = Random::seed_of_this_run("two servers");
    let server = Postgres::start();
    let key = SecretKey::random();
    let engines = [open(&server.url(), &key).await, open(&server.url(), &key).await];
    let venue = create_event(&*engines[0], 1, 3).await;
    let beginning = engines[0].event(&venue).await.unwrap().version;
    // The other server learns of the event by being asked.
    assert_eq!(engines[1].venue("gala").await.unwrap().expect("it is there").number, venue.number);
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (engine, other) = (Arc::clone(&engines[caller % 2]), Arc::clone(&engines[(caller + 1) % 2]));
        let (venue, mut random) = (Arc::clone(&venue), Random::new(seed + caller as u64));
        callers.spawn(async move {
            let (mut seats, mut units) = (0, 0);
            for turn in 0..16 {
                let is_seat = random.percent(50);
                let request = match is_seat {
                    true => hold_seat(&venue, random.within(0..3) as u32, LONG_MS),
                    false => hold_units(&venue, 1, LONG_MS),
                };
                let hold = match engine.execute(request).await {
                    Ok(done) => held(Ok(done)),
                    Err(EngineError::Refused(Refusal::SeatsTaken(_) | Refusal::PoolShort { .. })) => continue,
                    Err(error) => panic!("{error:?}"),
                };
                // The holder comes back to the other server as often as not.
                let next = if random.percent(50) { &engine } else { &other };
                match turn < 10 || random.percent(30) {
                    true => {
                        next.execute(release(&**next, hold.id)).await.unwrap();
                    }
                    false => {
                        next.execute(confirm(&**next, hold.id, None)).await.unwrap();
                        if is_seat { seats += 1 } else { units += 1 }
                    }
                }
            }
            (seats, units)
        });
    }
    let (mut seats, mut units) = (0, 0);
    while let Some(caller) = callers.join_next().await {
        let (more_seats, more_units) = caller.expect("no caller panics");
        seats += more_seats;
        units += more_units;
    }
    assert!(seats <= 3 && units <= 10, "{seats} seats and {units} units were sold");
    assert!(seats + units > 0, "something was sold");
    let looks = server.client().await;
    let last = number(&looks, "SELECT version FROM leasehold.events WHERE no = 0").await.unsigned_abs();
    for engine in &engines {
        let seen = versions(&**engine, &venue, beginning, last).await;
        assert_eq!(seen, (beginning.number + 1..=last).collect::<Vec<_>>(), "no gap and no repetition");
        let summary = engine.event(&venue).await.unwrap();
        assert_eq!((summary.counts.sold, summary.pools[0].sold), (seats, units));
        assert_eq!((summary.counts.held, summary.pools[0].held), (0, 0));
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'";
    assert_eq!(number(&looks, deadlocks).await, 0);
    assert_sound(&server).await;
    for engine in engines {
        engine.close().await;
    }
}

/// What is asked of many events at once is decided in one transaction, and each server's begins with another event: they
/// lock them in one order.
#[tokio::test(flavor = "multi_thread")]
async fn servers_that_want_the_same_events_in_other_orders_do_not_lock_each_other_out() {
    const EVENTS: usize = 8;
    const ROUNDS: usize = 25;
    let (server, key) = (Postgres::start(), SecretKey::random());
    // Sooner than a server gives up waiting for an event: otherwise no deadlock would be seen for one.
    let looks = server.client().await;
    for sql in ["ALTER SYSTEM SET deadlock_timeout = '20ms'", "SELECT pg_reload_conf()"] {
        looks.execute(sql, &[]).await.unwrap();
    }
    let engines = [open(&server.url(), &key).await, open(&server.url(), &key).await];
    let mut venues = Vec::new();
    for number in 0..EVENTS {
        venues.push(
            create_event_with(&*engines[0], &format!("event-{number}"), 1, 2_000, Policy::default()).await,
        );
    }
    for venue in &venues {
        engines[1].venue(venue.id.as_str()).await.unwrap().expect("the event");
    }
    for round in 0..ROUNDS {
        let mut callers = JoinSet::new();
        for (place, engine) in engines.iter().enumerate() {
            for turn in 0..EVENTS * 2 {
                // One goes up where the other goes down, and both begin somewhere else each time.
                let number = if place == 0 { turn + round } else { EVENTS * 3 - turn + round } % EVENTS;
                let (engine, venue) = (Arc::clone(engine), Arc::clone(&venues[number]));
                let seat = ((round * 2 + place) * EVENTS * 2 + turn) as u32;
                callers.spawn(async move {
                    let hold = held(engine.execute(hold_seat(&venue, seat, LONG_MS)).await);
                    match turn % 3 {
                        0 => engine.execute(confirm(&*engine, hold.id, None)).await.unwrap(),
                        _ => engine.execute(release(&*engine, hold.id)).await.unwrap(),
                    };
                });
            }
        }
        while let Some(caller) = callers.join_next().await {
            caller.expect("no caller panics");
        }
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'";
    assert_eq!(number(&looks, deadlocks).await, 0);
    assert_sound(&server).await;
    for engine in engines {
        engine.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_servers_that_start_at_once_migrate_an_empty_database_once() {
    let server = Postgres::start();
    let key = SecretKey::random();
    let starts: Vec<_> = (0..8)
        .map(|_| {
            let (url, key) = (server.url(), key.clone());
            tokio::spawn(async move { open(&url, &key).await })
        })
        .collect();
    let mut engines = Vec::new();
    for start in starts {
        engines.push(start.await.expect("every server starts"));
    }
    let looks = server.client().await;
    let (applied, distinct) = (
        number(&looks, "SELECT count(*) FROM leasehold.migrations").await,
        number(&looks, "SELECT count(DISTINCT name) FROM leasehold.migrations").await,
    );
    assert!(applied > 0 && applied == distinct, "{applied} migrations, {distinct} names");
    let venue = create_event(&*engines[0], 1, 8).await;
    for (seat, engine) in engines.iter().enumerate() {
        held(engine.execute(hold_seat(&venue, seat as u32, LONG_MS)).await);
    }
    for engine in engines {
        engine.close().await;
    }
    assert_sound(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_and_a_newer_ledger_are_refused_with_a_clear_word() {
    let server = Postgres::start();
    let key = SecretKey::random();
    open(&server.url(), &key).await.close().await;
    let other =
        ClusterEngine::open(ClusterOptions::new(server.url(), SecretKey::random())).await.unwrap_err();
    assert!(matches!(other, OpenLedgerError::OtherKey), "{other}");
    let looks = server.client().await;
    let newer = "INSERT INTO leasehold.migrations (number, name) VALUES (999, 'of the future')";
    looks.batch_execute(newer).await.unwrap();
    let error = ClusterEngine::open(ClusterOptions::new(server.url(), key)).await.unwrap_err();
    assert!(matches!(error, OpenLedgerError::TooNew { .. }), "{error}");
}

/// They change nothing, so there is nothing new in it.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_not_read_for_those_who_are_refused() {
    const LOSERS: u32 = 300;
    /// How often the log is read in any case.
    const TICK: Duration = Duration::from_millis(25);
    let server = Postgres::start_with(&["-c", "shared_preload_libraries=pg_stat_statements"]);
    let engine = open(&server.url(), &SecretKey::random()).await;
    let venue = create_event(&*engine, 1, 1).await;
    held(engine.execute(hold_seat(&venue, 0, LONG_MS)).await);
    let looks = server.client().await;
    looks.batch_execute("CREATE EXTENSION pg_stat_statements").await.unwrap();
    let reads = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
                 WHERE query LIKE '%AS known (no, version)%' AND query LIKE '%leasehold.log%'";
    let begun = Instant::now();
    let before = number(&looks, reads).await;
    for loser in 0..LOSERS {
        // The one is refused by the ledger itself, the other by the rules.
        let request = match loser % 2 {
            0 => hold_seat(&venue, 0, LONG_MS),
            _ => hold_units(&venue, 11, LONG_MS),
        };
        let told = engine.execute(request).await;
        assert!(matches!(told, Err(EngineError::Refused(_))), "{told:?}");
    }
    let read = number(&looks, reads).await - before;
    let in_any_case = begun.elapsed().as_millis() / TICK.as_millis() + 2;
    assert!(i128::from(read) <= in_any_case as i128, "{read} times for {LOSERS}, and not {in_any_case}");
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_is_shed_and_what_was_accepted_is_done() {
    let server = Postgres::start();
    let options = ClusterOptions::new(server.url(), SecretKey::random()).queue_length_max(8);
    let engine = Arc::new(ClusterEngine::open(options).await.unwrap());
    let venue = create_event(&*engine, 10, 100).await;
    let callers: Vec<_> = (0..1_000)
        .map(|seat| {
            let (engine, venue) = (Arc::clone(&engine), Arc::clone(&venue));
            tokio::spawn(async move { engine.execute(hold_seat(&venue, seat, LONG_MS)).await })
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
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_lost_on_the_way_is_found_by_asking_again() {
    let server = Postgres::start();
    let key = SecretKey::random();
    let direct = open(&server.url(), &key).await;
    let venue = create_event(&*direct, 1, 10).await;
    let proxy = FaultProxy::start(server.address()).await;
    // One connection to write on, so that it is the one whose answers are lost.
    let options = ClusterOptions::new(through(&proxy), key).writers(1);
    let engine = Arc::new(ClusterEngine::open(options).await.unwrap());
    held(engine.execute(hold_seat(&venue, 0, LONG_MS)).await);
    let looks = server.client().await;

    proxy.swallow(Direction::Answers);
    let before = proxy.traffic().swallowed_answer_bytes;
    let asking = {
        let (engine, request) = (Arc::clone(&engine), hold_seat(&venue, 1, LONG_MS));
        tokio::spawn(async move { engine.execute(request).await })
    };
    // It has taken effect, and nobody here knows.
    until("the hold is in the ledger", async || {
        number(&looks, "SELECT count(*) FROM leasehold.holds").await == 2
    })
    .await;
    proxy.wait_for(|traffic| traffic.swallowed_answer_bytes > before).await;
    assert!(!asking.is_finished());
    proxy.pass().await;
    let hold = held(asking.await.unwrap());
    assert_eq!(number(&looks, "SELECT count(*) FROM leasehold.holds").await, 2, "it was made once");
    let seen = held(direct.hold(hold.id, Some(direct.secret_of(hold.id))).await);
    assert_eq!(seen, hold);
    assert_sound(&server).await;
    engine.close().await;
    direct.close().await;
}

/// Buyers who hold and buy a seat of their own under idempotency keys, and ask again until they know.
struct Buyers {
    tasks: JoinSet<()>,
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    in_flight: AtomicUsize,
    bought: AtomicUsize,
    told_unavailable: AtomicUsize,
}

/// One of them.
struct Buyer {
    number: u32,
    engine: Arc<ClusterEngine>,
    venue: Arc<Venue>,
    counts: Arc<Counts>,
}

impl Buyer {
    /// Asks until the answer is known; it must be one of success.
    async fn ask(&self, make: impl Fn() -> Request + Send + Sync) -> Done {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            self.counts.in_flight.fetch_add(1, Ordering::SeqCst);
            let answer = self.engine.execute(make()).await;
            self.counts.in_flight.fetch_sub(1, Ordering::SeqCst);
            match answer {
                Ok(done) => return done,
                Err(EngineError::Unknown | EngineError::Overloaded | EngineError::InFlight) => {}
                Err(EngineError::Unavailable) => {
                    self.counts.told_unavailable.fetch_add(1, Ordering::SeqCst);
                }
                Err(other) => panic!("{other:?}"),
            }
            assert!(Instant::now() < deadline, "the ledger is back, and no answer comes");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Holds, buys and cancels the buyer's own seat.
    async fn buy(&self, round: u128) {
        let name = u128::from(self.number) << 32 | round << 2;
        let (id, booking) = (new_hold_id(), new_booking_id());
        let create = || {
            let mut request = hold_seat(&self.venue, self.number, LONG_MS).with_key(key(name | 1, 1));
            if let Command::CreateHold(create) = &mut request.command {
                create.id = id;
            }
            request
        };
        assert_eq!(held(Ok(self.ask(create).await)).id, id);
        let sale = || {
            let confirm = ConfirmHold { hold: id, booking, payment_ref: None, order_ref: None, items: None };
            by_owner(&*self.engine, id, Command::ConfirmHold(confirm)).with_key(key(name | 2, 1))
        };
        let sold = self.ask(sale).await.outcome;
        assert!(matches!(&sold, Outcome::Booking(sale) if sale.id == booking), "{sold:?}");
        self.counts.bought.fetch_add(1, Ordering::SeqCst);
        let cancel = || {
            let cancel = Command::CancelBooking(CancelBooking { booking });
            Request::new(cancel).with_key(key(name | 3, 1))
        };
        self.ask(cancel).await;
    }
}

impl Buyers {
    fn start(engine: &Arc<ClusterEngine>, venue: &Arc<Venue>, count: u32) -> Self {
        let mut buyers = Self { tasks: JoinSet::new(), stop: Arc::default(), counts: Arc::default() };
        for number in 0..count {
            let (engine, venue) = (Arc::clone(engine), Arc::clone(venue));
            let buyer = Buyer { number, engine, venue, counts: Arc::clone(&buyers.counts) };
            let stop = Arc::clone(&buyers.stop);
            buyers.tasks.spawn(async move {
                for round in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    buyer.buy(round).await;
                }
            });
        }
        buyers
    }

    /// Waits until requests are in flight, and at least `more` sales were made from here on.
    async fn are_buying(&self, more: usize) {
        let from = self.counts.bought.load(Ordering::SeqCst);
        until("buyers buy", async || self.counts.bought.load(Ordering::SeqCst) >= from + more).await;
        assert!(self.counts.in_flight.load(Ordering::SeqCst) > 0, "requests are in flight");
    }

    /// Lets everybody finish. Returns how many sales there were.
    async fn finish(mut self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(buyer) = self.tasks.join_next().await {
            buyer.expect("no buyer panics");
        }
        self.counts.bought.load(Ordering::SeqCst)
    }
}

/// Everything that was sold was cancelled, each exactly once: nothing is left, and the log has all of it.
async fn assert_every_sale_is_there_once(server: &Postgres, bought: usize) {
    let looks = server.client().await;
    let bookings = number(&looks, "SELECT count(*) FROM leasehold.bookings WHERE cancelled").await;
    assert_eq!(usize::try_from(bookings).unwrap(), bought, "each sale once");
    assert_eq!(number(&looks, "SELECT count(*) FROM leasehold.sales").await, 0);
    assert_eq!(number(&looks, "SELECT count(*) FROM leasehold.seats WHERE status <> 0").await, 0);
    assert_sound(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_in_the_middle_of_everything_lose_and_double_nothing() {
    let server = Postgres::start();
    let key = SecretKey::random();
    let proxy = FaultProxy::start(server.address()).await;
    let engine = open(&through(&proxy), &key).await;
    let venue = create_event(&*engine, 1, 24).await;
    let buyers = Buyers::start(&engine, &venue, 24);
    let mut cut = 0;
    for _ in 0..12 {
        buyers.are_buying(20).await;
        cut += proxy.cut().await;
    }
    buyers.are_buying(20).await;
    assert!(cut >= 12, "{cut} connections were cut");
    let bought = buyers.finish().await;
    assert_every_sale_is_there_once(&server, bought).await;
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_killed_and_comes_back_has_everything_that_was_answered() {
    let mut server = Postgres::start();
    let key = SecretKey::random();
    let engine = open(&server.url(), &key).await;
    let venue = create_event(&*engine, 1, 24).await;
    let buyers = Buyers::start(&engine, &venue, 24);
    let counts = Arc::clone(&buyers.counts);
    for round in 0..3 {
        buyers.are_buying(30).await;
        server.kill9();
        // While it is away callers are told so, and readers still see what was there.
        let from = counts.told_unavailable.load(Ordering::SeqCst);
        until("callers are told", async || counts.told_unavailable.load(Ordering::SeqCst) > from).await;
        until("the server says so", async || !engine.is_ready()).await;
        assert!(engine.availability(&venue, Since::Nothing).await.is_ok());
        server.restart();
        let back = Instant::now();
        buyers.are_buying(10).await;
        assert!(back.elapsed() < Duration::from_secs(15), "round {round}: back after {:?}", back.elapsed());
    }
    until("the server is ready", async || engine.is_ready()).await;
    let bought = buyers.finish().await;
    assert_every_sale_is_there_once(&server, bought).await;
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_in_the_middle_of_a_transaction_does_not_block_the_others() {
    let server = Postgres::start();
    let key = SecretKey::random();
    let proxy = FaultProxy::start(server.address()).await;
    let (stalled, other) = (open(&through(&proxy), &key).await, open(&server.url(), &key).await);
    let venue = create_event(&*other, 1, 40).await;
    let buyers = Buyers::start(&stalled, &venue, 24);
    let looks = server.client().await;
    let idle = "SELECT count(*) FROM pg_stat_activity
                WHERE application_name = 'leasehold' AND state = 'idle in transaction'";
    // What the server sends next is lost on the way, until one of its transactions hangs in the air.
    let mut hangs = false;
    for _ in 0..50 {
        buyers.are_buying(3).await;
        proxy.swallow(Direction::Requests);
        tokio::time::sleep(Duration::from_millis(30)).await;
        hangs = number(&looks, idle).await > 0;
        if hangs {
            break;
        }
        proxy.pass().await;
    }
    assert!(hangs, "no transaction was caught in the middle");
    let begun = Instant::now();
    for seat in 30..40 {
        held(other.execute(hold_seat(&venue, seat, LONG_MS)).await);
    }
    let waited = begun.elapsed();
    println!("the other server waited {waited:?} for the one that stands still");
    assert!(waited < Duration::from_secs(4), "the other server waited {waited:?}");
    proxy.pass().await;
    let bought = buyers.finish().await;
    let bookings = number(&looks, "SELECT count(*) FROM leasehold.bookings WHERE cancelled").await;
    assert_eq!(usize::try_from(bookings).unwrap(), bought, "each sale once");
    assert_sound(&server).await;
    stalled.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_expiries_is_spread_over_transactions_and_nobody_is_told_sold_out_falsely() {
    const HOLDS: u32 = 1_500;
    let server = Postgres::start();
    let engine = open(&server.url(), &SecretKey::random()).await;
    let create = Command::CreateEvent(CreateEvent {
        id: Name::parse("gala").unwrap(),
        name: Text::parse("Gala").unwrap(),
        layout: Arc::default(),
        pools: vec![(Name::parse("floor").unwrap(), HOLDS)],
        policy: Policy::default(),
    });
    let venue = engine.execute(Request::new(create)).await.unwrap().venue;
    let ask = |quantity, ttl| {
        let (engine, request) = (Arc::clone(&engine), hold_units(&venue, quantity, ttl));
        tokio::spawn(async move { engine.execute(request).await })
    };
    let mut last = Timestamp::default();
    for task in (0..HOLDS).map(|_| ask(1, 4_000)).collect::<Vec<_>>() {
        last = last.max(held(task.await.unwrap()).expires_at);
    }
    // Everything is held, and then, at one instant, nothing is.
    while engine.now() <= last.after(Millis(20)) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for task in [ask(HOLDS / 2, LONG_MS), ask(HOLDS / 2, LONG_MS)] {
        held(task.await.unwrap());
    }
    let refused = engine.execute(hold_units(&venue, 1, LONG_MS)).await;
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::PoolShort { .. }))), "{refused:?}");
    assert_sound(&server).await;
    engine.close().await;
}
