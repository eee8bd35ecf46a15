//! The pages on a ledger that several servers share: what they say when it goes, and when one of the servers does.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use leasehold_api::{CreateEvent, SeatSpec};
use leasehold_client::{Client, Request};
use leasehold_testkit::servers::{Postgres, RedisServer};
use leasehold_testkit::{Launch, Screen, ServerProcess};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

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

/// An address behind which each server answers in its turn, one after the other.
async fn balanced(servers: [String; 2]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for turn in 0.. {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut server = TcpStream::connect(&servers[turn % 2]).await.unwrap();
            tokio::spawn(async move {
                let passed = copy_bidirectional(&mut client, &mut server);
                let _ = tokio::time::timeout(Duration::from_secs(2), passed).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn figures_of_servers_that_answer_by_turns_are_not_compared_and_the_console_says_so() {
    let (ledger, gate) = (Postgres::start(), RedisServer::start());
    let (first, second) = (serve(&ledger, &gate), serve(&ledger, &gate));
    sell(&first).await;
    // Refusals that one server has counted and the other has not.
    let mut client = Client::new(first.address());
    for _ in 0..300 {
        let body = serde_json::json!({"items": [{"seat": "A-1"}]});
        client.send(Request::post("/v1/events/gala/holds", &body)).await.unwrap();
    }
    let address = balanced([first.address().to_owned(), second.address().to_owned()]).await;
    let mut operator = Person::sit_down(Screen::DESKTOP).await;
    operator.expect_in_log("net::ERR_");
    operator.open(&format!("http://{address}/console#sales")).await;
    operator.until_there("#mixed").await;
    assert_accessible(&mut operator, "several servers").await;
    // What was refused before the page was opened never shows up as refused just now.
    let refused = "document.querySelector('#server-sales [data-of=refused]').textContent";
    for _ in 0..20 {
        let shown = operator.run(&format!("return {refused};")).await;
        assert!(shown == "0" || shown == "–", "{shown}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    operator.assert_no_complaints().await;
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
async fn whoever_comes_while_the_server_knows_nothing_reads_that_it_does_not_answer() {
    let (mut ledger, gate) = (Postgres::start(), RedisServer::start());
    let server = serve(&ledger, &gate);
    ledger.kill9();
    let mut buyer = Person::sit_down(Screen::PHONE).await;
    buyer.expect_in_log("status of 503");
    buyer.open(&format!("http://{}/events/gala", server.address())).await;
    buyer.until_there("#stale").await;
    buyer.until_says("The ticket server does not answer. This page keeps asking.").await;
    assert_accessible(&mut buyer, "nothing to show").await;
    ledger.restart();
    // It kept asking, and knows now that there is none.
    buyer.expect_in_log("status of 404");
    buyer.until_says("There is no such event").await;
    assert_eq!(buyer.run("return document.getElementById('stale').hidden;").await, true);
    buyer.assert_no_complaints().await;
}

#[tokio::test]
async fn an_operator_sees_the_ledger_and_the_servers_on_it_come_and_go() {
    let (mut ledger, mut gate) = (Postgres::start(), RedisServer::start());
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

    gate.kill9();
    // Whoever asks for a seat notices.
    for number in 1..=6 {
        let body = serde_json::json!({"items": [{"seat": format!("A-{number}")}]});
        Client::new(first.address()).send(Request::post("/v1/events/gala/holds", &body)).await.unwrap();
    }
    operator.until(&is("gate", "Left out, the ledger decides alone")).await;

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

    // What is drawn of the event is old while the ledger is gone, and says so, though this server answers.
    operator.click(".tabs a[href='#seats']").await;
    operator.until("document.getElementById('map')?.connection === 'live'").await;
    let pill = |state: &str| format!("document.getElementById('connection').dataset.state === {state:?}");
    operator.until(&pill("live")).await;
    for view in ["seats", "sales"] {
        operator.click(&format!(".tabs a[href='#{view}']")).await;
        operator.until_there(&format!("#view[data-showing={view}]")).await;
        operator.until("document.getElementById('stale').hidden").await;
        ledger.kill9();
        operator.until_there("#stale").await;
        operator.until_says("This is how it stood").await;
        operator.until(&pill("behind")).await;
        assert_accessible(&mut operator, "an old map or old figures").await;
        ledger.restart();
        operator.until("document.getElementById('stale').hidden").await;
        operator.until(&pill("live")).await;
    }
    operator.assert_no_complaints().await;
}
