//! A server on a ledger behind a gate, over HTTP: grants, the hot seat, refusals, and what losers cost PostgreSQL.

use std::time::Duration;

use anyhow::ensure;

use crate::Bench;
use crate::child::Server;
use crate::http::{
    CONNECTIONS, HOT_CONNECTIONS, ROWS, SEATS_PER_ROW, check_oversell, create_event, grant, rate,
};
use crate::load::{self, Connection};
use crate::postgres::Postgres;
use crate::table::{Aim, Table};

const HOLD: &str = r#"{"items":[{"seat":"A-1-1"}],"holder":"u1","ttl_ms":300000}"#;

/// `peer`: holds a second of one transaction for each.
pub(crate) async fn measure(
    bench: &Bench,
    table: &mut Table,
    ledger: &Postgres,
    gate: &str,
    peer: f64,
) -> anyhow::Result<()> {
    let duration = Duration::from_secs(if bench.quick { 3 } else { 8 });
    let server = Server::replica(&ledger.url(), gate)?;
    create_event(server.address, "grants", ROWS, SEATS_PER_ROW).await?;
    let path = "/v1/events/grants/holds";
    let granted =
        load::run(server.address, CONNECTIONS, duration, 201, move |number, turn| grant(path, number, turn))
            .await?;
    check_oversell(server.address, "grants", granted.answered).await?;
    table.ratio(
        "the same over HTTP, 200 connections",
        rate(&granted),
        format!("a FOR UPDATE transaction for each hold: {peer:.0}/s"),
        granted.per_second() / peer,
        Aim::AtLeast(3.0),
    );

    create_event(server.address, "hot", 1, 1).await?;
    let first = load::post("/v1/events/hot/holds", HOLD);
    let status = Connection::open(server.address).await?.send(&first).await?.0;
    ensure!(status == 201, "the first hold of the hot seat is granted");
    ledger.count_anew().await?;
    let bare = Server::bare()?;
    let request = load::post("/v1/events/hot/refused", HOLD);
    let plain = load::run(bare.address, CONNECTIONS, duration, 409, move |_, _| request.clone()).await?;
    let refused = refusals(&server, CONNECTIONS, duration).await?;
    let hot = refusals(&server, HOT_CONNECTIONS, duration).await?;
    let statements = ledger.statements_of_callers().await? as f64;
    let seconds = refused.elapsed.as_secs_f64() + hot.elapsed.as_secs_f64();
    check_oversell(server.address, "hot", 1).await?;
    table.ratio(
        "refused at the gate over HTTP, 200 connections",
        rate(&refused),
        format!("bare axum {}", rate(&plain)),
        refused.per_second() / plain.per_second(),
        Aim::AtLeast(0.5),
    );
    drop(bare);
    let locked = ledger.hot_seat(HOT_CONNECTIONS, duration).await?;
    table.ratio(
        "hot seat over HTTP at the gate, 50 clients",
        rate(&hot),
        format!("PostgreSQL FOR UPDATE {}", rate(&locked)),
        hot.per_second() / locked.per_second(),
        Aim::AtLeast(20.0),
    );
    println!(
        "{} losers of one seat in {seconds:.0} s cost PostgreSQL {statements} statements",
        refused.answered + hot.answered
    );
    // Whoever is let through in a half minute asks once, and looks once when the seat is free again.
    table.figure(
        "statements of PostgreSQL for losers, a seat and 30 s begun",
        statements / (seconds / 30.0).ceil(),
        "",
        Aim::AtMost(1.0),
    );
    Ok(())
}

async fn refusals(server: &Server, clients: usize, duration: Duration) -> anyhow::Result<load::Loaded> {
    let request = load::post("/v1/events/hot/holds", HOLD);
    load::run(server.address, clients, duration, 409, move |_, _| request.clone()).await
}
