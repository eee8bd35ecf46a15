//! The command at a terminal: what it prints, and what it exits with.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_api::{
    BookingView, ConfirmHold, CreateEvent, CreateHold, HoldView, ItemSpec, LockGrant, LockView, PoolSpec,
    RefundView, SeatSpec,
};
use leasehold_client::{Client, Request};
use leasehold_testkit::Launch;

fn leasehold(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold")).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn it_does_not_listen_to_strangers_unless_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("x.db");
    let refused = leasehold(&["serve", "--listen", "0.0.0.0:0", "--data", data.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    let why = stderr(&refused);
    assert!(why.contains("no API keys") && why.contains("--insecure-listen-without-keys"), "{why}");
    assert!(!data.exists(), "nothing was begun");
}

#[tokio::test]
async fn a_running_server_is_listed_checked_and_copied() {
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("shop.db"), folder.path().join("copy.db"));
    let server = Launch::new(Path::new(env!("CARGO_BIN_EXE_leasehold")), &data).start();
    let url = format!("http://{}", server.address());
    let mut client = Client::new(&url);
    let seats = ["A-1", "A-2"].map(|id| SeatSpec::Id(id.to_owned())).to_vec();
    let event = CreateEvent { id: "gala".to_owned(), seats, ..CreateEvent::default() };
    assert_eq!(client.send(Request::post("/v1/events", &event)).await.unwrap().status, 201);
    let holder = Some("ada".to_owned());
    let hold = CreateHold { items: vec![ItemSpec::seat("A-1")], holder, ..CreateHold::default() };
    assert_eq!(client.send(Request::post("/v1/events/gala/holds", &hold)).await.unwrap().status, 201);

    let events = leasehold(&["events", "--url", &url]);
    assert!(events.status.success() && stdout(&events).contains("gala"), "{events:?}");
    let holds = leasehold(&["holds", "gala", "--url", &url]);
    assert!(stdout(&holds).contains("ada") && stdout(&holds).contains("A-1"), "{holds:?}");
    assert!(!stdout(&holds).contains("secret"), "a list has no secrets");
    let unknown = leasehold(&["holds", "nowhere", "--url", &url]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stderr(&unknown).contains("404 not-found"), "{unknown:?}");

    let (data, copy) = (data.to_str().unwrap(), copy.to_str().unwrap());
    let checked = leasehold(&["check", data]);
    assert!(checked.status.success() && stdout(&checked).contains("all invariants hold"), "{checked:?}");
    let copied = leasehold(&["backup", data, "--to", copy]);
    assert!(copied.status.success(), "{copied:?}");
    assert!(!leasehold(&["backup", data, "--to", copy]).status.success(), "a copy never overwrites");
    let checked = leasehold(&["check", copy, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!((report["events"].as_u64(), report["holds"].as_u64()), (Some(1), Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_made_while_the_server_sells_has_all_that_was_granted_before_it() {
    const BUYERS: usize = 8;
    let binary = Path::new(env!("CARGO_BIN_EXE_leasehold"));
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("shop.db"), folder.path().join("copy.db"));
    let server = Launch::new(binary, &data).start();
    let pools = vec![PoolSpec { id: "floor".to_owned(), capacity: 1_000_000 }];
    let event = CreateEvent { id: "gala".to_owned(), pools, ..CreateEvent::default() };
    let mut client = Client::new(server.address());
    assert_eq!(client.send(Request::post("/v1/events", &event)).await.unwrap().status, 201);
    let (granted, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let buyers = (0..BUYERS).map(|_| {
        let mut client = Client::new(server.address());
        let (granted, stop) = (Arc::clone(&granted), Arc::clone(&stop));
        tokio::spawn(async move {
            let body = CreateHold { items: vec![ItemSpec::pool("floor", 1)], ..CreateHold::default() };
            while !stop.load(Ordering::Relaxed) {
                let answer = client.send(Request::post("/v1/events/gala/holds", &body)).await.unwrap();
                granted.lock().unwrap().push(answer.json::<HoldView>().unwrap());
            }
        })
    });
    let buyers: Vec<_> = buyers.collect();
    let count = || granted.lock().unwrap().len();
    while count() < 500 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let before = granted.lock().unwrap().clone();
    let args = ["backup", data.to_str().unwrap(), "--to", copy.to_str().unwrap()].map(str::to_owned);
    let copied =
        tokio::task::spawn_blocking(move || leasehold(&args.each_ref().map(String::as_str))).await.unwrap();
    assert!(copied.status.success(), "{copied:?}");
    assert!(count() > before.len() + BUYERS, "the server sold while it was copied");
    stop.store(true, Ordering::Relaxed);
    for buyer in buyers {
        buyer.await.unwrap();
    }
    drop(server);

    let checked = leasehold(&["check", copy.to_str().unwrap()]);
    assert!(checked.status.success() && stdout(&checked).contains("all invariants hold"), "{checked:?}");
    let restored = Launch::new(binary, &copy).start();
    let mut client = Client::new(restored.address());
    for hold in before {
        let read = Request::get(format!("/v1/holds/{}", hold.hold_id)).secret(hold.secret.unwrap());
        let read = client.send(read).await.unwrap();
        assert_eq!(read.status, 200, "{} was granted before the copy and is not in it", hold.hold_id);
        assert_eq!(read.json::<HoldView>().unwrap().state, "held");
    }
}

#[tokio::test]
async fn payments_that_must_be_given_back_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        Launch::new(Path::new(env!("CARGO_BIN_EXE_leasehold")), &folder.path().join("shop.db")).start();
    let url = format!("http://{}", server.address());
    let mut client = Client::new(&url);
    let seats = vec![SeatSpec::Id("A-1".to_owned())];
    let event = CreateEvent { id: "gala".to_owned(), seats, ..CreateEvent::default() };
    assert_eq!(client.send(Request::post("/v1/events", &event)).await.unwrap().status, 201);
    let holder = Some("ada".to_owned());
    let hold = CreateHold { items: vec![ItemSpec::seat("A-1")], holder, ..CreateHold::default() };
    let hold: HoldView =
        client.send(Request::post("/v1/events/gala/holds", &hold)).await.unwrap().json().unwrap();
    assert!(stdout(&leasehold(&["refunds", "gala", "--json", "--url", &url])).is_empty());
    for (payment, status) in [("pay-1", 201), ("pay-2", 409), ("pay-3", 409)] {
        let confirm = ConfirmHold { payment_ref: Some(payment.to_owned()), ..ConfirmHold::default() };
        let confirm = Request::post(format!("/v1/holds/{}/confirm", hold.hold_id), &confirm);
        let answer = client.send(confirm.secret(hold.secret.clone().unwrap())).await.unwrap();
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let table = stdout(&leasehold(&["refunds", "gala", "--url", &url]));
    assert!(table.contains("ada") && table.contains("pay-2") && !table.contains("pay-1"), "{table}");
    let listed = stdout(&leasehold(&["refunds", "gala", "--json", "--url", &url]));
    let listed = listed.lines().map(|line| serde_json::from_str::<RefundView>(line).unwrap());
    let mut due: Vec<_> = listed.map(|refund| (refund.payment_ref, refund.hold_id)).collect();
    due.sort();
    assert_eq!(due, ["pay-2", "pay-3"].map(|payment| (payment.to_owned(), hold.hold_id.clone())));
}

#[tokio::test]
async fn a_second_server_on_the_same_file_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("shop.db");
    let _server = Launch::new(Path::new(env!("CARGO_BIN_EXE_leasehold")), &data).start();
    let second = leasehold(&["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).contains("in use by another process"), "{second:?}");
}

#[tokio::test]
async fn the_port_is_opened_only_when_the_file_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("shop.db");
    let first = Launch::new(Path::new(env!("CARGO_BIN_EXE_leasehold")), &data).start();
    // Both the file and the port are taken: the file is asked for first.
    let second = leasehold(&["serve", "--listen", first.address(), "--data", data.to_str().unwrap()]);
    assert!(stderr(&second).contains("in use by another process"), "{second:?}");
    let other = folder.path().join("other.db");
    let third = leasehold(&["serve", "--listen", first.address(), "--data", other.to_str().unwrap()]);
    assert_eq!(third.status.code(), Some(1));
    assert!(stderr(&third).contains("cannot listen on"), "{third:?}");
}

#[tokio::test]
async fn a_file_that_was_tampered_with_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("shop.db");
    let mut server = Launch::new(Path::new(env!("CARGO_BIN_EXE_leasehold")), &data).start();
    let mut client = Client::new(server.address());
    let seats = ["A-1", "A-2"].map(|id| SeatSpec::Id(id.to_owned())).to_vec();
    let event = CreateEvent { id: "gala".to_owned(), seats, ..CreateEvent::default() };
    assert_eq!(client.send(Request::post("/v1/events", &event)).await.unwrap().status, 201);
    let hold = CreateHold { items: vec![ItemSpec::seat("A-1")], ..CreateHold::default() };
    let hold: HoldView =
        client.send(Request::post("/v1/events/gala/holds", &hold)).await.unwrap().json().unwrap();
    let confirm = ConfirmHold { payment_ref: Some("pay-1".to_owned()), ..ConfirmHold::default() };
    let confirm = Request::post(format!("/v1/holds/{}/confirm", hold.hold_id), &confirm);
    assert_eq!(client.send(confirm.secret(hold.secret.unwrap())).await.unwrap().status, 201);
    let check = || leasehold(&["check", data.to_str().unwrap()]);
    // Until the tables show it all: what they do not show yet comes from the journal.
    while !stdout(&check()).contains("(0 not yet in the tables)") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.sigterm_and_wait().code(), Some(0));
    assert_eq!(check().status.code(), Some(0));

    let connection = rusqlite::Connection::open(&data).unwrap();
    connection.execute_batch("CREATE TEMP TABLE kept AS SELECT * FROM payments").unwrap();
    for (tamper, undo, found) in [
        // A sale that no booking explains.
        (
            "INSERT INTO sales (event_no, seat_no, booking_no) VALUES (0, 1, 99)",
            "DELETE FROM sales WHERE booking_no = 99",
            &["broken: sales:"][..],
        ),
        // A booking whose payment is gone.
        ("DELETE FROM payments", "INSERT INTO payments SELECT * FROM kept", &["broken: I7: hold"]),
        // A hold and a payment whose booking is gone.
        ("DELETE FROM bookings", "", &["broken: I6:", "broken: I7: payment pay-1", "broken: sales:"]),
    ] {
        assert_eq!(connection.execute(tamper, []).unwrap(), 1, "{tamper}");
        let checked = check();
        assert_eq!(checked.status.code(), Some(1));
        for found in found {
            assert!(stdout(&checked).contains(found), "{found}: {checked:?}");
        }
        connection.execute_batch(undo).unwrap();
    }
}

#[test]
fn rush_sells_exactly_what_there_is_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    let args = ["rush", "--seats", "3", "--users", "50", "--duration", "1s", "--json", "--report"];
    let output = leasehold(&[&args[..], &[report.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(verdict["verdict"]["passed"], true, "{verdict}");
    let page = std::fs::read_to_string(report).unwrap();
    assert!(page.contains("<svg") && page.contains("exactly 3 of 3"), "the report shows the verdict");
}

/// The policy in a refusal tells which rate the server was given.
#[tokio::test]
async fn a_flag_is_over_the_environment_and_that_is_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("leasehold.toml");
    std::fs::write(&config, "event_rate = \"3:1\"\nrequire_idempotency_key = true\n").unwrap();
    let data = folder.path().join("shop.db");
    let launch = Launch::new(Path::new(env!("CARGO_BIN_EXE_leasehold")), &data);
    let from_file = launch.args(&["--config", config.to_str().unwrap()]);
    let from_variable = from_file.clone().variable("LEASEHOLD_EVENT_RATE", "5:1");
    let from_flag = from_variable.clone().args(&["--event-rate", "7:1"]);
    for (launch, rate) in [(from_file, 3), (from_variable, 5), (from_flag, 7)] {
        let server = launch.start();
        let mut client = Client::new(server.address());
        let seats = vec![SeatSpec::Id("A-1".to_owned())];
        let event = CreateEvent { id: "gala".to_owned(), seats, ..CreateEvent::default() };
        client.send(Request::post("/v1/events", &event).idempotency_key("event")).await.unwrap();
        let hold = CreateHold { items: vec![ItemSpec::seat("A-1")], ..CreateHold::default() };
        let hold = Request::post("/v1/events/gala/holds", &hold);
        let keyless = client.send(hold.clone()).await.unwrap();
        assert_eq!(keyless.code().as_deref(), Some("idempotency-missing"), "the rest comes from the file");
        let mut limited = None;
        for attempt in 0..50 {
            let answer = client.send(hold.clone().idempotency_key(format!("hold-{attempt}"))).await.unwrap();
            limited = limited.or(Some(answer).filter(|answer| answer.status == 429));
        }
        let limited = limited.expect("fifty at once are more than a burst of one");
        assert_eq!(limited.headers["ratelimit-policy"], format!("\"event\";q={rate};w=1"));
    }
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_lines_that_the_demo_prints_can_be_pasted() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    demo.args(["demo", "--listen", "127.0.0.1:0", "--crowd", "0"]).stdout(Stdio::piped());
    let mut demo = Ended(demo.spawn().unwrap());
    let printed = BufReader::new(demo.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let printed: Vec<String> = printed.take_while(|line| !line.starts_with("Ctrl-C")).collect();
    let indented = printed.iter().filter(|line| line.starts_with("  ") && !line.contains("cargo run"));
    let script: Vec<&str> = indented.map(String::as_str).collect();
    assert_eq!(script.iter().filter(|line| line.contains("curl")).count(), 4, "{printed:#?}");

    let folder = tempfile::tempdir().unwrap();
    // The answers end without a new line.
    let script = script.join("\n").replace("curl -s", "echo; curl -sS --fail-with-body");
    let script = format!("set -eu; {script}");
    let pasted = Command::new("sh").args(["-c", &script]).current_dir(&folder).output().unwrap();
    assert!(pasted.status.success(), "{pasted:?}\n{script}");
    let answers = stdout(&pasted);
    let mut answers = answers.lines().filter(|line| !line.is_empty());
    let hold: HoldView = serde_json::from_str(answers.next().unwrap()).unwrap();
    assert_eq!(hold.items.len(), 4, "a seat, two together, and two standing places: {hold:?}");
    let booking: BookingView = serde_json::from_str(answers.next().unwrap()).unwrap();
    assert_eq!(booking.items, hold.items);
    let grant: LockGrant = serde_json::from_str(answers.next().unwrap()).unwrap();
    let lock: LockView = serde_json::from_str(answers.next().unwrap()).unwrap();
    assert_eq!((lock.fence, lock.label.as_deref()), (grant.fence, Some("me")));
}

#[test]
fn help_has_examples_and_completions_are_printed() {
    let commands = [
        "serve",
        "demo",
        "rush",
        "check",
        "backup",
        "migrate",
        "events",
        "holds",
        "refunds",
        "run",
        "lock",
        "doctor",
        "completions",
    ];
    let of_locks = ["acquire", "renew", "release", "ls", "why"].map(|command| ["lock", command]);
    for command in commands.iter().map(std::slice::from_ref).chain(of_locks.iter().map(|pair| &pair[..])) {
        let help = leasehold(&[command, &["--help"]].concat());
        assert!(help.status.success() && stdout(&help).contains("Examples:"), "{command:?}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&leasehold(&["completions", shell])).contains("leasehold"), "{shell}");
    }
    assert_eq!(leasehold(&["sreve"]).status.code(), Some(2));
}
