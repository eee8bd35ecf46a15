//! Over HTTP: refusals and grants beside a bare axum route, and the hot seat beside PostgreSQL.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;

use crate::Bench;
use crate::bare::{GRANT_BYTES, REFUSAL_BYTES};
use crate::child::Server;
use crate::load::{self, Connection, Loaded};
use crate::postgres::Postgres;
use crate::table::{Aim, Table};

pub(crate) const CONNECTIONS: usize = 200;
pub(crate) const HOT_CONNECTIONS: usize = 50;
/// Seats for the grants: enough that no connection runs out of fresh ones.
pub(crate) const ROWS: u64 = 600;
pub(crate) const SEATS_PER_ROW: u64 = 1_000;

/// A load with the server's time on the processor.
struct Measured {
    loaded: Loaded,
    cpu_per_request_us: f64,
}

pub(crate) async fn measure(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let rounds = if bench.quick { 1 } else { 5 };
    let duration = Duration::from_secs(if bench.quick { 2 } else { 4 });
    let folder = tempfile::tempdir_in(&bench.folder)?;
    let bare = Server::bare()?;
    let refusing = Server::leasehold(&folder.path().join("refusing.db"))?;
    create_event(refusing.address, "hot", 1, 1).await?;
    let hold = r#"{"items":[{"seat":"A-1-1"}],"holder":"u1","ttl_ms":300000}"#;
    let winner =
        Connection::open(refusing.address).await?.send(&load::post("/v1/events/hot/holds", hold)).await?.0;
    ensure!(winner == 201, "the first hold of the hot seat is granted");
    check_sizes(refusing.address).await?;
    let (mut refused, mut bare_refused) = (vec![], vec![]);
    for _ in 0..rounds {
        let request = load::post("/v1/events/hot/refused", hold);
        bare_refused.push(one(&bare, duration, 409, move |_, _| request.clone()).await?);
        let request = load::post("/v1/events/hot/holds", hold);
        refused.push(one(&refusing, duration, 409, move |_, _| request.clone()).await?);
    }
    check_oversell(refusing.address, "hot", 1).await?;
    compare(table, "refused hold (409) over HTTP, 200 connections", &refused, &bare_refused, 0.85);
    let (ours_cpu, bare_cpu) = (cpu(&refused), cpu(&bare_refused));
    table.ratio(
        "the same: server CPU per request, the peer's in ours",
        format!("{ours_cpu:.1} us"),
        format!("bare axum {bare_cpu:.1} us"),
        bare_cpu / ours_cpu,
        Aim::AtLeast(0.85),
    );

    let (mut granted, mut bare_granted) = (vec![], vec![]);
    for round in 0..rounds {
        let path = "/v1/events/x/granted";
        bare_granted.push(one(&bare, duration, 201, move |number, turn| grant(path, number, turn)).await?);
        // A file of its own for each round, and time for its tables to show the seats.
        let granting = Server::leasehold(&folder.path().join(format!("granting-{round}.db")))?;
        create_event(granting.address, "grants", ROWS, SEATS_PER_ROW).await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let path = "/v1/events/grants/holds";
        granted.push(one(&granting, duration, 201, move |number, turn| grant(path, number, turn)).await?);
        let answered = granted.last().expect("just pushed").loaded.answered;
        check_oversell(granting.address, "grants", answered).await?;
    }
    let work = "granted durable hold over HTTP, distinct seats, 200 connections";
    compare(table, work, &granted, &bare_granted, 0.5);

    let request = load::post("/v1/events/hot/holds", hold);
    let hot =
        load::run(refusing.address, HOT_CONNECTIONS, duration, 409, move |_, _| request.clone()).await?;
    check_oversell(refusing.address, "hot", 1).await?;
    drop((bare, refusing));
    let postgres = Postgres::start().await?;
    let locked = postgres.hot_seat(HOT_CONNECTIONS, duration).await?;
    let ratio = hot.per_second() / locked.per_second();
    let peer = format!("PostgreSQL FOR UPDATE {}", rate(&locked));
    table.ratio("hot seat over HTTP, 50 clients", rate(&hot), peer, ratio, Aim::AtLeast(40.0));
    Ok(())
}

async fn one(
    server: &Server,
    duration: Duration,
    expected: u16,
    request: impl Fn(usize, u64) -> Vec<u8> + Send + Sync + 'static,
) -> anyhow::Result<Measured> {
    let before = server.cpu()?;
    let loaded = load::run(server.address, CONNECTIONS, duration, expected, request).await?;
    let cpu = server.cpu()? - before;
    Ok(Measured { loaded, cpu_per_request_us: cpu.as_secs_f64() * 1e6 / loaded.requests as f64 })
}

fn compare(table: &mut Table, work: &str, ours: &[Measured], bare: &[Measured], aim: f64) {
    let rate = |all: &[Measured]| median(all.iter().map(|one| one.loaded.per_second()));
    let (ours, bare) = (rate(ours), rate(bare));
    let peer = format!("bare axum {bare:.0}/s");
    table.ratio(work, format!("{ours:.0}/s"), peer, ours / bare, Aim::AtLeast(aim));
}

fn cpu(all: &[Measured]) -> f64 {
    median(all.iter().map(|one| one.cpu_per_request_us))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) fn rate(loaded: &Loaded) -> String {
    format!("{:.0}/s", loaded.per_second())
}

/// Every connection has rows of its own, so all holds are of distinct seats.
pub(crate) fn grant(path: &str, number: usize, turn: u64) -> Vec<u8> {
    let place = number as u64 * (ROWS * SEATS_PER_ROW / CONNECTIONS as u64) + turn;
    let (row, seat) = (place / SEATS_PER_ROW + 1, place % SEATS_PER_ROW + 1);
    load::post(
        path,
        &format!(r#"{{"items":[{{"seat":"A-{row}-{seat}"}}],"holder":"u{number}","ttl_ms":300000}}"#),
    )
}

pub(crate) async fn create_event(address: SocketAddr, id: &str, rows: u64, seats: u64) -> anyhow::Result<()> {
    let body = format!(
        r#"{{"id":"{id}","layout":{{"sections":[{{"name":"A","rows":{rows},"seats_per_row":{seats}}}]}}}}"#
    );
    let mut connection = Connection::open(address).await?;
    let (status, answer) = connection.send(&load::post("/v1/events", &body)).await?;
    ensure!(status == 201, "{status} {}", String::from_utf8_lossy(answer));
    Ok(())
}

/// The bare route must answer with as many bytes as we do.
async fn check_sizes(address: SocketAddr) -> anyhow::Result<()> {
    create_event(address, "size", 1, 1).await?;
    let mut connection = Connection::open(address).await?;
    let hold =
        load::post("/v1/events/size/holds", r#"{"items":[{"seat":"A-1-1"}],"holder":"u1","ttl_ms":300000}"#);
    let granted = connection.send(&hold).await?.1.len();
    let refused = connection.send(&hold).await?.1.len();
    ensure!(
        granted.abs_diff(GRANT_BYTES) < 24,
        "a grant has {granted} bytes, the bare route's {GRANT_BYTES}"
    );
    ensure!(
        refused.abs_diff(REFUSAL_BYTES) < 12,
        "a refusal has {refused} bytes, the bare route's {REFUSAL_BYTES}"
    );
    Ok(())
}

/// What the server says is held is what was granted, to the last seat.
pub(crate) async fn check_oversell(address: SocketAddr, event: &str, granted: u64) -> anyhow::Result<()> {
    let mut connection = Connection::open(address).await?;
    let (status, body) = connection.send(&load::get(&format!("/v1/events/{event}"))).await?;
    ensure!(status == 200, "the event can be read");
    let view: Value = serde_json::from_slice(body)?;
    let held = view["seats"]["held"].as_u64().unwrap_or_default();
    ensure!(held == granted, "{granted} seats were granted, {held} are held");
    Ok(())
}
