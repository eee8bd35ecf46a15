//! The ledger on PostgreSQL: durable holds on distinct seats, beside one transaction for each hold on the same server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use leasehold_core::{
    Command, CreateEvent, CreateHold, ItemRequest, Layout, Millis, Name, Policy, SeatNo, Text,
};
use leasehold_engine::{
    ClusterEngine, ClusterOptions, Engine, EngineError, Request, SecretKey, Venue, check_ledger, new_hold_id,
};

use crate::Bench;
use crate::postgres::Postgres;
use crate::table::{Aim, Table};

/// Callers of the engine at a time.
const CALLERS: usize = 1_024;
/// Connections of the peer: more do not make it faster on two cores.
const PEER_CLIENTS: usize = 32;
/// Seats of the event: more than are held in the longest run.
const SEATS_PER_ROW: u32 = 1_000;
const ROWS: u32 = 1_000;

pub(crate) async fn measure(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let seconds = if bench.quick { 4 } else { 10 };
    let duration = Duration::from_secs(seconds);
    let server = Postgres::start().await?;
    server.require_durable().await?;
    // In turns, so that a slow minute of the machine is in both.
    let (mut ours, mut peer) = (0.0, 0.0);
    const TURNS: u32 = 2;
    for turn in 0..TURNS {
        peer += server.hold_by_hold(PEER_CLIENTS, duration / TURNS).await? / f64::from(TURNS);
        ours += holds(&server, &format!("bench-{turn}"), duration / TURNS).await? / f64::from(TURNS);
    }
    table.ratio(
        &format!("durable holds in the engine on PostgreSQL, distinct seats of one event, {CALLERS} callers"),
        format!("{ours:.0}/s"),
        format!("a FOR UPDATE transaction for each hold, {PEER_CLIENTS} connections: {peer:.0}/s"),
        ours / peer,
        Aim::AtLeast(5.0),
    );
    let report = check_ledger(&server.url()).await?;
    ensure!(report.problems.is_empty(), "the ledger is not sound: {:?}", report.problems);
    Ok(())
}

/// Holds a second: every caller holds the next seat that nobody has.
async fn holds(server: &Postgres, event: &str, duration: Duration) -> anyhow::Result<f64> {
    let options = ClusterOptions::new(server.url(), SecretKey::from_bytes([7; 32]));
    let engine = Arc::new(ClusterEngine::open(options).await?);
    let create = Command::CreateEvent(CreateEvent {
        id: Name::parse(event)?,
        name: Text::parse("Bench")?,
        layout: Arc::new(Layout::grid(&[(Name::parse("A")?, ROWS, SEATS_PER_ROW)])?),
        pools: vec![],
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
                duration,
            ))
        })
        .collect();
    let mut granted = 0;
    for caller in callers {
        granted += caller.await??;
    }
    let elapsed = begun.elapsed();
    let held = engine.event(&venue).await?.counts.held;
    ensure!(held == granted, "{granted} holds were granted and {held} are there");
    engine.close().await;
    Ok(f64::from(granted) / elapsed.as_secs_f64())
}

async fn hold_seats(
    engine: Arc<ClusterEngine>,
    venue: Arc<Venue>,
    next_seat: Arc<AtomicU32>,
    duration: Duration,
) -> anyhow::Result<u32> {
    let begun = Instant::now();
    let mut granted = 0;
    while begun.elapsed() < duration {
        let seat = next_seat.fetch_add(1, Ordering::Relaxed);
        ensure!(seat < ROWS * SEATS_PER_ROW, "the venue is too small for this machine");
        let create = CreateHold {
            event: venue.number,
            id: new_hold_id(),
            items: vec![ItemRequest::Seat(SeatNo(seat))],
            holder: None,
            ttl: Some(Millis(20 * 60_000)),
        };
        match engine.execute(Request::new(Command::CreateHold(create))).await {
            Ok(_) => granted += 1,
            Err(EngineError::Overloaded) => tokio::task::yield_now().await,
            Err(other) => bail!("{other}"),
        }
    }
    Ok(granted)
}
