//! The pages on a ledger that several servers share: what they say when it goes, and when one of the servers does.

use std::path::Path;

use leasehold_api::{CreateEvent, SeatSpec};
use leasehold_client::{Client, Request};
use leasehold_testkit::servers::{Postgres, RedisServer};
use leasehold_testkit::{Launch, Screen, ServerProcess};

use crate::accessibility::assert_accessible;
use crate::house::Person;

/// A server on this ledger. Its key is for tests only.
fn serve(ledger: &Postgres, gate: &RedisServer) -> ServerProcess {
    Launch::without_file(Path::new(env!("CARGO_BIN_EXE_leasehold")))
        .args(&["--ledger", &ledger.url(), "--gate", &gate.url()])
        .variable("LEASEHOLD_SECRET_KEY", &"5eed".repeat(16))
        .start()
}

async fn sell(server: &ServerProcess) {
    let seats = (1..=6).map(|number| SeatSpec::Id(format!("A-{number}"))).collect();
    let event = CreateEvent { id: "gala".to_owned(), seats, ..CreateEvent::default() };
    let created = Client::new(server.address()).send(Request::post("/v1/events", &event)).await.unwrap();
    assert_eq!(created.status, 201, "{created:?}");
}

#[tokio::test]
async fn a_buyer_is_told_that_the_map_is_old_while_the_ledger_is_gone() {
    let (mut ledger, gate) = (Postgres::start(), RedisServer::start());
    let server = serve(&ledger, &gate);
    sell(&server).await;
    let mut buyer = Person::sit_down(Screen::DESKTOP).await;
    buyer.open(&format!("http://{}/events/gala", server.address())).await;
    buyer.until("document.getElementById('map').connection === 'live'").await;
    assert_eq!(buyer.run("return document.getElementById('stale').hidden;").await, true);
    ledger.kill9();
    buyer.until_says("This is how it stood").await;
    buyer.until("document.getElementById('connection').dataset.state === 'behind'").await;
    assert_eq!(buyer.sees("A-1").await, "free", "what it knows is still shown");
    assert_accessible(&mut buyer, "behind").await;
    ledger.restart();
    buyer.until("document.getElementById('stale').hidden").await;
    buyer.until("document.getElementById('connection').dataset.state === 'live'").await;
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn an_operator_sees_the_ledger_and_the_servers_on_it_come_and_go() {
    let (mut ledger, gate) = (Postgres::start(), RedisServer::start());
    let (first, mut second) = (serve(&ledger, &gate), serve(&ledger, &gate));
    sell(&first).await;
    let mut operator = Person::sit_down(Screen::DESKTOP).await;
    operator.expect_in_log("status of 503");
    operator.open(&format!("http://{}/console#health", first.address())).await;
    let state_of = |server: &ServerProcess| {
        format!(
            "[...document.querySelectorAll('#replicas tbody tr')].find((row) => row.cells[0].textContent === {:?})?.cells[1].textContent",
            server.address()
        )
    };
    let says = |key: &str, words: &str| {
        format!("document.querySelector('[data-of={key}]')?.textContent === {words:?}")
    };
    let is = |part: &str, words: &str| {
        format!("document.getElementById('{part}-state')?.textContent === {words:?}")
    };
    operator.until(&format!("{} === 'This server'", state_of(&first))).await;
    operator.until(&format!("{} === 'Works'", state_of(&second))).await;
    operator.until(&is("ledger", "Answers")).await;
    operator.until(&says("leasehold_ledger_behind_seconds", "Current")).await;
    operator.until(&is("gate", "Turns losers away")).await;
    assert_accessible(&mut operator, "a cluster").await;

    second.sigstop();
    operator.until(&format!("{}?.startsWith('Silent for')", state_of(&second))).await;
    second.sigcont();
    operator.until(&format!("{} === 'Works'", state_of(&second))).await;
    second.kill9();
    operator.until(&format!("{}?.startsWith('Gone since')", state_of(&second))).await;
    assert_eq!(operator.run(&format!("return {};", state_of(&first))).await, "This server");

    ledger.kill9();
    operator.until(&is("ledger", "Does not answer")).await;
    operator.until_there("#replicas-unknown:not([hidden])").await;
    assert_accessible(&mut operator, "a cluster without its ledger").await;
    ledger.restart();
    operator.until(&is("ledger", "Answers")).await;
    operator
        .until("Number(document.querySelector('[data-of=leasehold_ledger_lost_total]')?.textContent) >= 1")
        .await;
    operator.until("document.getElementById('replicas-unknown').hidden").await;
    operator.assert_no_complaints().await;
}
