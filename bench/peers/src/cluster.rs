//! The ledger on PostgreSQL behind a gate on a Redis Cluster: durable holds on distinct seats, beside one transaction
//! for each hold on the same server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use leasehold_core::{
    Command, ConfirmHold, CreateEvent, CreateHold, HoldId, ItemRequest, Layout, Millis, Name, Policy, PoolNo,
    SeatNo, Text,
};
use leasehold_engine::{
    ClusterEngine, ClusterOptions, Engine, EngineError, IdempotencyKey, Request, SecretKey, Venue,
    check_ledger, new_booking_id, new_hold_id,
};

use leasehold_testkit::servers::{Persistence, RedisCluster};

use crate::Bench;
use crate::cluster_http;
use crate::postgres::Postgres;
use crate::table::{Aim, Table};

/// Callers of the engine at a time.
const CALLERS: usize = 1_024;
/// Connections of the peer: more do not make it faster on two cores.
pub(crate) const PEER_CLIENTS: usize = 32;
/// Seats of the event: more than are held in the longest run.
const SEATS_PER_ROW: u32 = 1_000;
const ROWS: u32 = 1_000;

pub(crate) async fn measure(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let seconds = if bench.quick { 4 } else { 10 };
    let duration = Duration::from_secs(seconds);
    let server = Postgres::start().await?;
    server.require_durable().await?;
    let cluster = RedisCluster::options().persistence(Persistence::None).start();
    let gate = format!("redis-cluster://{}", cluster.addresses().join(","));
    // In turns, so that a slow minute of the machine is in both.
    let (mut ours, mut alone, mut units, mut peer, mut sales) = (0.0, 0.0, 0.0, 0.0, 0.0);
    const TURNS: u32 = 2;
    for turn in 0..TURNS {
        peer += server.hold_by_hold(PEER_CLIENTS, duration / TURNS).await? / f64::from(TURNS);
        let event = format!("bench-{turn}");
        let (held, sold) =
            holds_and_sales(&server, Some(&gate), &event, What::Seats, duration / TURNS).await?;
        ours += held / f64::from(TURNS);
        let event = format!("alone-{turn}");
        let (held, _) = holds_and_sales(&server, None, &event, What::Seats, duration / TURNS).await?;
        alone += held / f64::from(TURNS);
        let event = format!("units-{turn}");
        let (held, _) =
            holds_and_sales(&server, None, &event, What::UnitsOf(PoolNo(0)), duration / TURNS).await?;
        units += held / f64::from(TURNS);
        sales += sold / f64::from(TURNS);
    }
    table.ratio(
        &format!(
            "durable holds in the engine, gate and ledger, distinct seats of one event, {CALLERS} callers"
        ),
        format!("{ours:.0}/s"),
        format!("a FOR UPDATE transaction for each hold, {PEER_CLIENTS} connections: {peer:.0}/s"),
        ours / peer,
        Aim::AtLeast(5.0),
    );
    println!("the same without a gate: {alone:.0}/s, {:.1} times the peer", alone / peer);
    println!("the same without a gate, a unit of one pool for each: {units:.0}/s");
    println!("the same holds confirmed, each under an idempotency key: {sales:.0}/s");
    let (mut gated, mut one, mut own, mut apart) = (0.0, 0.0, 0.0, 0.0);
    for turn in 0..TURNS {
        let time = duration / TURNS;
        let event = |kind: &str| format!("{kind}-{turn}");
        gated += servers_on_pools(&server, Some(&gate), &event("gated"), Pools::One, time).await?;
        one += servers_on_pools(&server, None, &event("common"), Pools::One, time).await?;
        own += servers_on_pools(&server, None, &event("own"), Pools::OneEach, time).await?;
        apart += servers_on_pools(&server, None, &event("apart"), Pools::OneEachInItsEvent, time).await?;
    }
    let [gated, one, own, apart] = [gated, one, own, apart].map(|sum| sum / f64::from(TURNS));
    println!("units of one pool, three servers behind a gate: {gated:.0}/s, and without it: {one:.0}/s");
    println!("units of a pool for each server in one event, as blocks with one log would be: {own:.0}/s");
    println!(
        "units of a pool in an event of its own for each server: {apart:.0}/s (the most that blocks would give)"
    );
    cluster_http::measure(bench, table, &server, &gate).await?;
    let report = check_ledger(&server.url()).await?;
    ensure!(report.problems.is_empty(), "the ledger is not sound: {:?}", report.problems);
    Ok(())
}

/// What callers hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Seats,
    UnitsOf(PoolNo),
}

/// Holds a second: every caller holds the next seat that nobody has, or one more unit. Then sales a second: the same callers confirm what
/// they hold.
async fn holds_and_sales(
    server: &Postgres,
    gate: Option<&str>,
    event: &str,
    what: What,
    duration: Duration,
) -> anyhow::Result<(f64, f64)> {
    let mut options = ClusterOptions::new(server.url(), SecretKey::from_bytes([7; 32]));
    if let Some(gate) = gate {
        options = options.gate(gate);
    }
    let engine = Arc::new(ClusterEngine::open(options).await?);
    let create = Command::CreateEvent(CreateEvent {
        id: Name::parse(event)?,
        name: Text::parse("Bench")?,
        layout: Arc::new(Layout::grid(&[(Name::parse("A")?, ROWS, SEATS_PER_ROW)])?),
        pools: vec![(Name::parse("floor")?, ROWS * SEATS_PER_ROW)],
        policy: Policy::default(),
    });
    let venue = engine.execute(Request::new(create)).await?.venue;
    let next_seat = Arc::new(AtomicU32::new(0));
    let begun = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            tokio::spawn(hold_seats(
                Arc::clone(&engine),
                Arc::clone(&venue),
                Arc::clone(&next_seat),
                what,
                duration,
            ))
        })
        .collect();
    let mut granted = Vec::new();
    for caller in callers {
        granted.push(caller.await??);
    }
    let elapsed = begun.elapsed();
    let count = granted.iter().map(Vec::len).sum::<usize>();
    let summary = engine.event(&venue).await?;
    let held = summary.counts.held + summary.pools[0].held;
    ensure!(held as usize == count, "{count} holds were granted and {held} are there");

    let begun = Instant::now();
    let callers: Vec<_> = granted
        .into_iter()
        .map(|holds| tokio::spawn(confirm(Arc::clone(&engine), holds, duration)))
        .collect();
    let mut sold = 0;
    for caller in callers {
        sold += caller.await??;
    }
    let selling = begun.elapsed();
    let summary = engine.event(&venue).await?;
    let counted = summary.counts.sold + summary.pools[0].sold;
    ensure!(counted == sold, "{sold} sales were answered and {counted} are there");
    engine.close().await;
    Ok((count as f64 / elapsed.as_secs_f64(), f64::from(sold) / selling.as_secs_f64()))
}

/// What three servers sell from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pools {
    One,
    /// Each from one that no other sells from, all in one event.
    OneEach,
    /// Each from one that no other has anything to do with, not even its event's row. A server with a block of stock in its
    /// memory would still have to make every hold durable, and could not do that faster.
    OneEachInItsEvent,
}

/// Holds of one unit a second, by three servers at once.
async fn servers_on_pools(
    server: &Postgres,
    gate: Option<&str>,
    event: &str,
    pools: Pools,
    duration: Duration,
) -> anyhow::Result<f64> {
    const SERVERS: u32 = 3;
    let stock = |number: u32| Ok((Name::parse(&format!("stock-{number}"))?, ROWS * SEATS_PER_ROW));
    let stocks = (0..SERVERS).map(stock).collect::<anyhow::Result<Vec<_>>>()?;
    let mut sellers = Vec::new();
    for number in 0..SERVERS {
        let (name, pool) = match pools {
            Pools::One => (event.to_owned(), 0),
            Pools::OneEach => (event.to_owned(), number),
            Pools::OneEachInItsEvent => (format!("{event}-{number}"), 0),
        };
        let mut options = ClusterOptions::new(server.url(), SecretKey::from_bytes([7; 32]));
        if let Some(gate) = gate {
            options = options.gate(gate);
        }
        let engine = Arc::new(ClusterEngine::open(options).await?);
        let venue = match engine.venue(&name).await? {
            Some(venue) => venue,
            None => {
                let create = Command::CreateEvent(CreateEvent {
                    id: Name::parse(&name)?,
                    name: Text::parse("Bench")?,
                    layout: Arc::new(Layout::grid(&[])?),
                    pools: stocks.clone(),
                    policy: Policy::default(),
                });
                engine.execute(Request::new(create)).await?.venue
            }
        };
        sellers.push((engine, venue, PoolNo(pool)));
    }
    let begun = Instant::now();
    let mut callers = Vec::new();
    for (engine, venue, pool) in &sellers {
        let next = Arc::new(AtomicU32::new(0));
        for _ in 0..CALLERS / SERVERS as usize {
            let (engine, venue, next) = (Arc::clone(engine), Arc::clone(venue), Arc::clone(&next));
            callers.push(tokio::spawn(hold_seats(engine, venue, next, What::UnitsOf(*pool), duration)));
        }
    }
    let mut granted = 0;
    for caller in callers {
        granted += caller.await??.len();
    }
    let elapsed = begun.elapsed();
    let pools_of = if pools == Pools::One { &sellers[..1] } else { &sellers[..] };
    let mut held = 0;
    // A server reads in the log what another one granted.
    while held != granted && begun.elapsed() < elapsed + Duration::from_secs(10) {
        held = 0;
        for (engine, venue, pool) in pools_of {
            held += engine.event(venue).await?.pools[pool.0 as usize].held as usize;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ensure!(held == granted, "{granted} units were granted and {held} are held");
    for (engine, ..) in sellers {
        engine.close().await;
    }
    Ok(granted as f64 / elapsed.as_secs_f64())
}

/// Confirms these holds, as many as there is time for.
async fn confirm(engine: Arc<ClusterEngine>, holds: Vec<HoldId>, duration: Duration) -> anyhow::Result<u32> {
    let begun = Instant::now();
    let mut sold = 0;
    for hold in holds {
        if begun.elapsed() >= duration {
            break;
        }
        let booking = new_booking_id();
        let confirm = ConfirmHold { hold, booking, payment_ref: None, order_ref: None, items: None };
        let key = IdempotencyKey { scope: booking.as_raw(), fingerprint: 1 };
        let request = Request::new(Command::ConfirmHold(confirm))
            .with_key(Some(key))
            .with_secret(Some(engine.secret_of(hold)));
        engine.execute(request).await?;
        sold += 1;
    }
    Ok(sold)
}

async fn hold_seats(
    engine: Arc<ClusterEngine>,
    venue: Arc<Venue>,
    next_seat: Arc<AtomicU32>,
    what: What,
    duration: Duration,
) -> anyhow::Result<Vec<HoldId>> {
    let begun = Instant::now();
    let mut granted = Vec::new();
    while begun.elapsed() < duration {
        let seat = next_seat.fetch_add(1, Ordering::Relaxed);
        ensure!(seat < ROWS * SEATS_PER_ROW, "the venue is too small for this machine");
        let id = new_hold_id();
        let item = match what {
            What::Seats => ItemRequest::Seat(SeatNo(seat)),
            What::UnitsOf(pool) => ItemRequest::Pool(pool, 1),
        };
        let create = CreateHold {
            event: venue.number,
            id,
            items: vec![item],
            holder: None,
            ttl: Some(Millis(20 * 60_000)),
        };
        match engine.execute(Request::new(Command::CreateHold(create))).await {
            Ok(_) => granted.push(id),
            Err(EngineError::Overloaded) => tokio::task::yield_now().await,
            Err(other) => bail!("{other}"),
        }
    }
    Ok(granted)
}
