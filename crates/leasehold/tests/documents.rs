//! What the documents tell people to type, typed as it stands there.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use leasehold_api::Availability;
use leasehold_testkit::servers::{Postgres, RedisServer};
use leasehold_testkit::{Launch, exchange, request_bytes, try_exchange, version_parts};
use rustix::process::{Pid, Signal, kill_process_group};

const BINARY: &str = env!("CARGO_BIN_EXE_leasehold");
const README: &str = include_str!("../../../README.md");
const RUNNING_FOR_REAL: &str = include_str!("../../../docs/running-for-real.md");

#[test]
fn the_first_sale_of_the_readme_goes_as_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::new(Path::new(BINARY), &folder.path().join("first.db")).start();
    // Where versions begin with another number, as the page says.
    let with_its_epoch = |text: &str| {
        let mut answer: Availability = serde_json::from_str(text).unwrap();
        answer.version = version_parts(&answer.version).1.to_string();
        answer
    };
    let said = first_sale(server.address(), folder.path());
    let page = &blocks(README, "The first sale, in a minute", "json")[0];
    assert_eq!(with_its_epoch(&said), with_its_epoch(page));
}

/// All of it but the packages' installation, which is what `cargo xtask test` begins with, and the release build. The
/// database and Redis are the test's own, so their places differ from the page's.
#[test]
fn three_replicas_are_five_commands_away() {
    let typed = commands(&blocks(RUNNING_FOR_REAL, "Three replicas on one machine", "sh")[0]);
    let [install, database, key, build, serve] = &typed[..] else { panic!("not five: {typed:#?}") };
    assert_eq!(install, "sudo apt-get install -y postgresql redis-server");
    assert_eq!(build, "cargo build --release");

    let (postgres, redis) = (Postgres::start(), RedisServer::start());
    let folder = tempfile::tempdir().unwrap();
    let port = postgres.port().to_string();
    let variables = [("USER", "ada"), ("PGUSER", "postgres"), ("PGHOST", "127.0.0.1"), ("PGPORT", &port)];
    let typing = |text: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-euc", text]).current_dir(folder.path()).envs(variables);
        shell
    };
    // The test's database lets its owner in whoever asks.
    run(&mut typing(&replaced(database, "sudo -u postgres ", "")));
    run(&mut typing(key));

    let addresses = free_addresses();
    let ports: Vec<&str> = addresses.iter().filter_map(|address| address.rsplit(':').next()).collect();
    let serve = replaced(serve, "7070 7071 7072", &ports.join(" "));
    let serve = replaced(&serve, "target/release/leasehold", BINARY);
    let serve = replaced(&serve, "%2Fvar%2Frun%2Fpostgresql", &postgres.address());
    let serve = replaced(&serve, "redis://127.0.0.1", &redis.url());
    let mut shell = typing(&format!("{serve}\nwait"));
    let _replicas = Family(shell.process_group(0).spawn().expect("sh runs"));
    for address in &addresses {
        let is_ready = || {
            let answer = try_exchange(address, &request_bytes("GET", "/readyz", &[], b""), PATIENCE);
            answer.is_some_and(|answer| answer.status == 200)
        };
        eventually(&format!("{address} is ready"), is_ready);
    }
    first_sale(&addresses[0], folder.path());
    for address in &addresses[1..] {
        eventually(&format!("the sale is seen at {address}"), || {
            let look = request_bytes("GET", "/v1/events/gala/availability", &[], b"");
            let answer = exchange(address, &look, PATIENCE);
            String::from_utf8_lossy(&answer.body).contains(r#""seats":"ssf""#)
        });
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

/// Does at this server what the README does with the demo; what was printed last.
fn first_sale(address: &str, folder: &Path) -> String {
    let blocks = blocks(README, "The first sale, in a minute", "sh");
    let run = |block: &str| {
        let text = replaced(block, "127.0.0.1:7070", address);
        run(Command::new("sh").args(["-euc", &text]).current_dir(folder))
    };
    let [create, hold, confirm, look] = &blocks[..] else { panic!("not four: {blocks:#?}") };
    assert!(run(create).contains(r#""id":"gala""#));
    assert!(run(hold).contains(r#""expires_in_ms":"#));
    assert!(run(&replaced(hold, " | tee hold.json", "")).contains("seat-taken"));
    let sold = run(confirm);
    assert!(sold.contains(r#""order_ref":"order-1""#), "{sold}");
    assert_eq!(run(confirm), sold, "the same answer comes back");
    run(look)
}

/// A shell and whom it started. They are gone when this is dropped, also by a panic.
struct Family(Child);

impl Drop for Family {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// The blocks in this language below a heading.
fn blocks(page: &str, heading: &str, language: &str) -> Vec<String> {
    let start = format!("\n## {heading}\n");
    let (_, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no heading {heading:?}"));
    let section = rest.split("\n## ").next().unwrap_or_default();
    let opening = format!("\n```{language}\n");
    let opened = section.split(&opening).skip(1);
    opened.filter_map(|text| text.split("\n```").next()).map(str::to_owned).collect()
}

/// A block's commands: its lines, where one that ends in a backslash goes on in the next.
fn commands(block: &str) -> Vec<String> {
    block.replace("\\\n", " ").lines().map(str::to_owned).collect()
}

fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from:?} in {text:?}");
    text.replace(from, to)
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("sh runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}\n{said}{}", String::from_utf8_lossy(&output.stderr));
    said.trim().to_owned()
}

fn free_addresses() -> [String; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("it is bound").to_string())
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
