//! The README's first command, tried: one seat held and sold, then a rush, then a clean end.

use std::process::{self, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::http::{self, Answer};
use crate::server::Server;
use crate::step::{output_of, release_build};

/// How long the demo's crowd may take until it has bought a seat.
const CROWD_TIME_MAX: Duration = Duration::from_secs(30);

/// Starts the demo as a user would and does with it what the README does.
pub(crate) fn check() -> Result<()> {
    let leasehold = release_build()?;
    let server = Server::start(&leasehold, &["demo"])?;
    sell_one_seat(&server)?;
    wait_for_the_crowd(&server)?;
    let mut rush = Command::new(&leasehold);
    rush.args(["rush", "--url", &server.url(), "--seats", "3", "--users", "200", "--duration", "10s"]);
    let report = output_of(&mut rush)?;
    ensure!(report.contains("exactly 3 of 3 seats sold"), "the rush says:\n{report}");
    let mut lines = report.lines().filter(|line| !line.is_empty());
    for line in [lines.next(), lines.next_back()].into_iter().flatten() {
        println!("  {line}");
    }
    server.stop()
}

/// An event with one seat: held, refused to a second buyer, sold, counted.
fn sell_one_seat(server: &Server) -> Result<()> {
    let event = format!("ci-{}", process::id());
    let created = format!(r#"{{"id":"{event}","seats":["A-1"]}}"#);
    expect(201, "create an event", http::post(server.address, "/v1/events", "", &created)?)?;

    let holds = format!("/v1/events/{event}/holds");
    let seat = r#"{"items":[{"seat":"A-1"}]}"#;
    let hold = expect(201, "hold a seat", http::post(server.address, &holds, "", seat)?)?;
    let id = hold.string("hold_id").context("a hold without an id")?;
    let secret = hold.string("secret").context("a hold without a secret")?;
    expect(409, "hold it a second time", http::post(server.address, &holds, "", seat)?)?;

    let confirm = format!("/v1/holds/{id}/confirm");
    let proof = format!("Hold-Secret: {secret}\r\n");
    expect(201, "confirm the hold", http::post(server.address, &confirm, &proof, "{}")?)?;

    let after = expect(200, "read the event", http::get(server.address, &format!("/v1/events/{event}"))?)?;
    ensure!(after.body.contains("\"sold\":1"), "one seat was sold, and the event says {}", after.body);
    Ok(())
}

/// The simulated buyers of the demo buy something.
fn wait_for_the_crowd(server: &Server) -> Result<()> {
    let deadline = Instant::now() + CROWD_TIME_MAX;
    loop {
        let arena = http::get(server.address, "/v1/events/arena")?;
        let seats = arena.body.split("\"seats\":").nth(1).unwrap_or_default();
        let sold = seats.split("\"sold\":").nth(1).and_then(|text| text.split([',', '}']).next());
        if sold.is_some_and(|sold| sold != "0") {
            println!("  the crowd has bought {} seats", sold.unwrap_or_default());
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "no simulated buyer bought a seat: {}", arena.body);
        thread::sleep(Duration::from_millis(200));
    }
}

fn expect(status: u16, what: &str, answer: Answer) -> Result<Answer> {
    ensure!(answer.status == status, "{what}: {} instead of {status}: {}", answer.status, answer.body);
    println!("  {what}: {status}");
    Ok(answer)
}
