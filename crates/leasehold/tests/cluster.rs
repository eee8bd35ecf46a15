//! `leasehold serve --ledger`: several servers on one PostgreSQL database, over HTTP, judged by the checker.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold_testkit::servers::Postgres;
use leasehold_testkit::{
    History, Launch, Outcome, Random, ServerProcess, Shop, Workload, check, exchange, read_back,
    request_bytes,
};

const BUYERS: usize = 48;

/// A server on this ledger. Its key is for tests only.
fn launch(url: &str) -> Launch {
    Launch::without_file(Path::new(env!("CARGO_BIN_EXE_leasehold")))
        .args(&["--ledger", url])
        .variable("LEASEHOLD_SECRET_KEY", &"5eed".repeat(16))
}

/// Answers that no server may give: a 5xx that is not one of the documented 503s.
fn undocumented(history: &History) -> Vec<String> {
    let operations = history.operations();
    let answers = operations.iter().filter_map(|operation| match &operation.outcome {
        Outcome::Answer(answer) if answer.status >= 500 => Some((operation, answer)),
        _ => None,
    });
    let bad = answers.filter(|(_, answer)| {
        let code = answer.code().unwrap_or_default();
        let documented = answer.status == 503 && ["overloaded", "outcome-unknown"].contains(&code.as_str());
        !documented || answer.header("retry-after").is_none()
    });
    bad.map(|(operation, answer)| {
        format!("{} {}: {answer:?}", operation.request.method, operation.request.path)
    })
    .collect()
}

async fn wait_until_ready(server: &ServerProcess, time_max: Duration) {
    let deadline = Instant::now() + time_max;
    let request = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    loop {
        let answer = leasehold_testkit::try_exchange(server.address(), request, Duration::from_secs(1));
        if answer.is_some_and(|answer| answer.status == 200) {
            return;
        }
        assert!(Instant::now() < deadline, "not ready within {time_max:?}\n{}", server.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_killed_and_a_ledger_that_is_killed_sell_nothing_twice_and_lose_nothing() {
    let seed = Random::seed_of_this_run("cluster");
    let mut random = Random::new(seed);
    let mut ledger = Postgres::start();
    let (first, mut second) = (launch(&ledger.url()).start(), launch(&ledger.url()).start());
    let history = History::new();
    let mut workload = Workload::new(random.next_u64(), BUYERS, Shop::small(), &history);
    workload.open_shop(first.address()).await;

    for round in 0..6 {
        workload.begin_round_on(&[first.address(), second.address()]);
        tokio::time::sleep(Duration::from_millis(random.within(300..900))).await;
        assert!(history.in_flight() > 0, "round {round}: requests are in flight");
        if round % 2 == 0 {
            ledger.kill9();
            tokio::time::sleep(Duration::from_millis(random.within(100..1_500))).await;
            ledger.restart();
            wait_until_ready(&first, Duration::from_secs(15)).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        } else {
            second.kill9();
        }
        let count = workload.end_round().await;
        println!("seed {seed}, round {round}: {count:?}");
        assert!(count.acknowledged > 0, "round {round}: nothing was done");
        if round % 2 == 1 {
            assert!(count.unanswered > 0, "round {round}: the kill hit nothing");
            second = launch(&ledger.url()).start();
        }
    }
    let unavailable =
        history.count_since(0, |operation| operation.answer().is_some_and(|answer| answer.status == 503));
    assert!(unavailable > 0, "nobody noticed that the ledger was away");
    assert_eq!(undocumented(&history), Vec::<String>::new());

    read_back(second.address(), &history).await;
    let checked = check(&history);
    println!("seed {seed}: {} requests, {} unknown", checked.operations, checked.unknown);
    checked.assert_clean();
    checked.assert_meaningful(500);
    for server in [&first, &second] {
        assert!(!server.log().contains("panicked"), "{}", server.log());
    }
    let found =
        Command::new(env!("CARGO_BIN_EXE_leasehold")).args(["check", &ledger.url()]).output().unwrap();
    let said = String::from_utf8_lossy(&found.stdout);
    assert!(found.status.success() && said.contains("all invariants hold"), "{said}");
}

#[test]
fn a_ledger_that_cannot_be_used_is_refused_with_a_clear_word() {
    let binary = env!("CARGO_BIN_EXE_leasehold");
    let ledger = ["serve", "--listen", "127.0.0.1:0", "--ledger", "postgres://nobody@127.0.0.1:1/x"];
    let run = |args: &[&str]| {
        let mut command = Command::new(binary);
        command.args(ledger).args(args).env("LEASEHOLD_SECRET_KEY", "5eed".repeat(16));
        let output = command.output().expect("the command runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let both = run(&["--data", "x.db"]);
    assert!(both.contains("choose one"), "{both}");
    let absent = run(&[]);
    assert!(absent.contains("--ledger: the ledger cannot be used"), "{absent}");
    assert!(![both, absent].concat().contains("5eed"), "a key is never shown");
}

#[test]
fn a_data_file_is_moved_once_and_servers_go_on_from_the_ledger() {
    let binary = Path::new(env!("CARGO_BIN_EXE_leasehold"));
    let folder = tempfile::tempdir().unwrap();
    let (data, key) = (folder.path().join("shop.db"), folder.path().join("leasehold.key"));
    let mut alone = Launch::new(binary, &data).start();
    let time_max = Duration::from_secs(10);
    let event = br#"{"id":"gala","name":"Gala","seats":["A-1","A-2"]}"#;
    let create = request_bytes("POST", "/v1/events", &[("content-type", "application/json")], event);
    assert_eq!(exchange(alone.address(), &create, time_max).status, 201);
    let ledger = Postgres::start();
    let migrate = || {
        let mut command = Command::new(binary);
        command.arg("migrate").arg(&data).args(["--to", &ledger.url(), "--secret-key-file"]).arg(&key);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let (code, said) = migrate();
    assert!(code == Some(1) && said.contains("in use by another process"), "{said}");
    alone.kill9();
    let (code, said) = migrate();
    assert!(code == Some(0) && said.contains("1 events"), "{said}");
    let (code, said) = migrate();
    assert!(code == Some(1) && said.contains("was moved into a ledger"), "{said}");

    let server = Launch::without_file(binary)
        .args(&["--ledger", &ledger.url(), "--secret-key-file", &key.display().to_string()])
        .start();
    let look = request_bytes("GET", "/v1/events/gala", &[], b"");
    assert_eq!(exchange(server.address(), &look, time_max).status, 200);
}
