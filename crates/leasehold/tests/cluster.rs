//! `leasehold serve --ledger` at its start: what it refuses, and how a data file becomes a ledger.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use leasehold_testkit::servers::Postgres;
use leasehold_testkit::{Launch, exchange, request_bytes};

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
    // A key file with another key is known while the server still sells.
    let known = std::fs::read(&key).unwrap();
    std::fs::write(&key, "5eed".repeat(16)).unwrap();
    let (code, said) = migrate();
    assert!(code == Some(1) && said.contains("another key"), "{said}");
    std::fs::write(&key, known).unwrap();
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
