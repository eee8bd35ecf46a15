//! A server on a ledger behind a gate, over HTTP: grants, the hot seat, refusals, and what losers cost PostgreSQL.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::Value;

use crate::Bench;
use crate::child::Server;
use crate::cluster::PEER_CLIENTS;
use crate::http::{
    CONNECTIONS, HOT_CONNECTIONS, ROWS, SEATS_PER_ROW, check_oversell, create_event, grant, rate,
};
use crate::load::{self, Connection, Loaded};
use crate::postgres::Postgres;
use crate::table::{Aim, Table};

const HOT: &str = "/v1/events/hot/holds";
/// Everything is measured in turns with its peer, so that a slow moment of the machine is in both, and so is what
/// PostgreSQL still has to do after the work before.
const TURNS: u32 = 4;

pub(crate) async fn measure(
    bench: &Bench,
    table: &mut Table,
    ledger: &Postgres,
    gate: &str,
) -> anyhow::Result<()> {
    let duration = Duration::from_secs(if bench.quick { 3 } else { 8 });
    let server = Server::replica(&ledger.url(), gate)?;
    let (mut granted, mut peer) = (vec![], 0.0);
    for turn in 0..TURNS {
        peer += ledger.hold_by_hold(PEER_CLIENTS, duration / TURNS).await? / f64::from(TURNS);
        let event = format!("grants-{turn}");
        create_event(server.address, &event, ROWS, SEATS_PER_ROW).await?;
        let path = format!("/v1/events/{event}/holds");
        let request = move |number, turn| grant(&path, number, turn);
        let loaded = load::run(server.address, CONNECTIONS, duration / TURNS, 201, request).await?;
        check_oversell(server.address, &event, loaded.answered).await?;
        granted.push(loaded);
    }
    let mean = |runs: &[Loaded]| runs.iter().map(Loaded::per_second).sum::<f64>() / f64::from(TURNS);
    let granted = mean(&granted);
    table.ratio(
        "the same over HTTP, 200 connections",
        format!("{granted:.0}/s"),
        format!("a FOR UPDATE transaction for each hold: {peer:.0}/s"),
        granted / peer,
        Aim::AtLeast(3.0),
    );

    // Two seats that are gone: one is held, one is sold.
    create_event(server.address, "hot", 1, 2).await?;
    let mut desk = Connection::open(server.address).await?;
    for seat in 1..=2 {
        let (status, body) = desk.send(&load::post(HOT, &hold_of(seat))).await?;
        ensure!(status == 201, "the first hold of a hot seat is granted");
        if seat == 2 {
            let hold: Value = serde_json::from_slice(body)?;
            let text = |field: &str| hold[field].as_str().unwrap_or_default().to_owned();
            let path = format!("/v1/holds/{}/confirm", text("hold_id"));
            let secret = format!("hold-secret: {}\r\n", text("secret"));
            let (status, _) = desk.send(&load::post_with(&path, &secret, "{}")).await?;
            ensure!(status == 200 || status == 201, "the second one is sold");
        }
    }
    let bare = Server::bare()?;
    let (mut plain, mut refused, mut keyed) = (vec![], vec![], vec![]);
    let (mut locked, mut hot) = (vec![], vec![]);
    for _ in 0..TURNS {
        let turn = duration / TURNS;
        let path = "/v1/events/hot/refused";
        plain.push(
            load::run(bare.address, CONNECTIONS, turn, 409, |_, _| load::post(path, &hold_of(1))).await?,
        );
        let refuse =
            |clients| load::run(server.address, clients, turn, 409, |_, _| load::post(HOT, &hold_of(1)));
        refused.push(refuse(CONNECTIONS).await?);
        let round = keyed.len();
        let with_key = move |number, turn| {
            let key = format!("idempotency-key: refused-{round}-{number}-{turn}\r\n");
            load::post_with(HOT, &key, &hold_of(1))
        };
        keyed.push(load::run(server.address, CONNECTIONS, turn, 409, with_key).await?);
        locked.push(ledger.hot_seat(HOT_CONNECTIONS, turn).await?);
        hot.push(refuse(HOT_CONNECTIONS).await?);
    }
    drop(bare);
    let [plain, refused, keyed, locked, hot] = [plain, refused, keyed, locked, hot].map(|runs| mean(&runs));
    for (work, figure) in [
        ("refused behind a gate over HTTP, 200 connections", refused),
        ("the same, each under a key of its own, so that Redis is asked for each", keyed),
    ] {
        table.ratio(
            work,
            format!("{figure:.0}/s"),
            format!("bare axum {plain:.0}/s"),
            figure / plain,
            Aim::AtLeast(0.5),
        );
    }
    table.ratio(
        "hot seat over HTTP at the gate, 50 clients",
        format!("{hot:.0}/s"),
        format!("PostgreSQL FOR UPDATE {locked:.0}/s"),
        hot / locked,
        Aim::AtLeast(20.0),
    );

    // What goes on while nobody asks for anything is not for losers; every statement beyond that counts.
    ledger.count_anew().await?;
    let idle_time = Duration::from_secs(if bench.quick { 5 } else { 20 });
    tokio::time::sleep(idle_time).await;
    let idle = ledger.statements().await?;
    ledger.count_anew().await?;
    let begun = Instant::now();
    // Twice as long as the gate believes anything, so that it is doubted twice whenever that begins; half of them with a
    // key, half of them for what is sold.
    let long = Duration::from_secs(if bench.quick { 6 } else { 120 });
    let losers = load::run(server.address, HOT_CONNECTIONS, long, 409, |number, turn| {
        let key = match turn % 2 {
            0 => String::new(),
            _ => format!("idempotency-key: loser-{number}-{turn}\r\n"),
        };
        load::post_with(HOT, &key, &hold_of(number % 2 + 1))
    })
    .await?;
    let times = begun.elapsed().as_secs_f64() / idle_time.as_secs_f64();
    let statements = ledger.statements_above(&idle, times).await?;
    check_oversell(server.address, "hot", 1).await?;
    let seconds = losers.elapsed.as_secs_f64();
    println!(
        "{} losers of two seats in {seconds:.0} s, {}, cost PostgreSQL {statements:.0} statements",
        losers.answered,
        rate(&losers)
    );
    table.figure(
        "statements of PostgreSQL for losers, a seat and 30 s",
        statements / 2.0 / (seconds / 30.0).max(1.0),
        "",
        Aim::AtMost(1.0),
    );
    Ok(())
}

fn hold_of(seat: usize) -> String {
    format!(r#"{{"items":[{{"seat":"A-1-{seat}"}}],"holder":"u1","ttl_ms":300000}}"#)
}
