//! `leasehold rush` as a process: every shape of load on an honest server, and what it says of one that lies.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_testkit::{Launch, RawAnswer, exchange};
use serde_json::Value;

/// Runs it and returns its exit status and its report.
fn rush(args: &[&str]) -> (Option<i32>, Value) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_leasehold")).args(["rush", "--json"]).args(args).output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code(), report)
}

#[test]
fn every_shape_of_load_ends_with_a_verdict() {
    for (args, sold) in [
        ("--seats 3 --shape hot", "exactly 3 of 3 seats sold"),
        ("--seats 20 --shape spread", "of 20 seats sold"),
        ("--seats 20 --shape best", "exactly 20 of 20 seats sold"),
        ("--seats 0 --pool 30", "30 of 30 units sold"),
        ("--seats 5 --pool 10", "exactly 5 of 5 seats sold, 10 of 10 units sold"),
        ("--seats 3 --no-confirm --hold-ttl 1m", "0 of 3 seats sold"),
    ] {
        let args: Vec<&str> = args.split(' ').chain(["--users", "20", "--duration", "1s"]).collect();
        let (status, report) = rush(&args);
        assert_eq!(
            (status, &report["verdict"]["passed"]),
            (Some(0), &Value::Bool(true)),
            "{args:?}: {report}"
        );
        let said = report["verdict"]["sold"].as_str().unwrap();
        assert!(said.contains(sold), "{args:?}: {said}");
    }
}

#[test]
fn a_rate_is_kept_whatever_the_server_could_do() {
    let (status, report) = rush(&["--seats", "3", "--users", "20", "--duration", "2s", "--rate", "50"]);
    assert_eq!(status, Some(0), "{report}");
    // As fast as answers come it would be thousands: 100 attempts are due, and each winner confirms.
    let sent = report["requests"].as_u64().unwrap();
    assert!((20..=110).contains(&sent), "{sent} requests: {report}");
}

/// While it runs a terminal shows how it goes, and then the report alone.
#[test]
fn a_terminal_is_shown_how_it_goes() {
    let line = format!(
        "stty cols 120; '{}' rush --seats 3 --users 10 --duration 2s --rate 200",
        env!("CARGO_BIN_EXE_leasehold")
    );
    let output = Command::new("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    let bars: Vec<&str> = shown.split('\r').filter(|drawn| drawn.contains('━')).collect();
    assert!(bars.len() > 2 && bars.iter().any(|bar| bar.ends_with("3 sold")), "{bars:?}");
    let (_, report) = shown.rsplit_once("\u{1b}[").expect("the bar is taken away");
    assert!(report.contains("exactly 3 of 3 seats sold") && !report.contains('━'), "{report}");
}

/// What a liar does to the answers of an honest server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    /// Whoever asks for a seat gets the first buyer's hold, and its booking too.
    EverybodyWins,
    /// The first hold is granted, and the answer says that the server broke down.
    OneBreakdown,
    /// Every hold that is asked for is granted, and none is sold.
    NothingIsSold,
}

/// A server that lies: it asks the honest one at `honest`, and changes the answer.
struct Liar {
    honest: String,
    lie: Lie,
    /// The first yes to a hold, and to a confirm.
    first: Mutex<[Option<RawAnswer>; 2]>,
}

impl Liar {
    /// Begins to lie; where.
    fn start(honest: &str, lie: Lie) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let liar = Arc::new(Self { honest: honest.to_owned(), lie, first: Mutex::default() });
        // Both kinds of threads end with the test.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let liar = Arc::clone(&liar);
                std::thread::spawn(move || liar.serve(stream.unwrap()));
            }
        });
        address
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some((path, request)) = read_request(&mut reader) {
            let RawAnswer { status, body, .. } = self.answer(&path, &request);
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
            if stream.write_all(&[head.as_bytes(), &body].concat()).is_err() {
                return;
            }
        }
    }

    fn answer(&self, path: &str, request: &[u8]) -> RawAnswer {
        let honest = || exchange(&self.honest, request, Duration::from_secs(10));
        let kind = match path {
            _ if path.ends_with("/holds") => 0,
            _ if path.ends_with("/confirm") => 1,
            _ => return honest(),
        };
        if self.lie == Lie::NothingIsSold && kind == 1 {
            let body = br#"{"code": "hold-expired"}"#.to_vec();
            return RawAnswer { status: 410, headers: Vec::new(), body, closed: false };
        }
        // One at a time, so that there is a first one.
        let mut first = self.first.lock().unwrap();
        match (&first[kind], self.lie) {
            (Some(yes), Lie::EverybodyWins) => yes.clone(),
            (None, _) => {
                let answer = honest();
                first[kind] = Some(answer.clone()).filter(|answer| answer.status == 201);
                let breakdown = self.lie == Lie::OneBreakdown && kind == 0;
                if breakdown { RawAnswer { status: 500, body: Vec::new(), ..answer } } else { answer }
            }
            (Some(_), Lie::OneBreakdown | Lie::NothingIsSold) => honest(),
        }
    }
}

/// The path and all bytes of the next request on a connection.
fn read_request(reader: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let (mut bytes, mut length) = (Vec::new(), 0);
    loop {
        let begin = bytes.len();
        if reader.read_until(b'\n', &mut bytes).ok()? == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&bytes[begin..]).trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let head = bytes.len();
    bytes.resize(head + length, 0);
    reader.read_exact(&mut bytes[head..]).ok()?;
    let path = String::from_utf8_lossy(&bytes).split(' ').nth(1)?.to_owned();
    Some((path, bytes))
}

fn rush_against_a_liar(lie: Lie) -> (Option<i32>, Value) {
    let folder = tempfile::tempdir().unwrap();
    let honest =
        Launch::new(Path::new(env!("CARGO_BIN_EXE_leasehold")), &folder.path().join("honest.db")).start();
    let url = format!("http://{}", Liar::start(honest.address(), lie));
    rush(&["--url", &url, "--seats", "1", "--users", "10", "--duration", "500ms"])
}

#[test]
fn a_server_that_sells_a_seat_twice_is_found_out() {
    let (status, report) = rush_against_a_liar(Lie::EverybodyWins);
    assert_eq!((status, &report["verdict"]["oversold"]), (Some(1), &Value::Bool(true)), "{report}");
    assert!(report["verdict"]["complaints"].to_string().contains("sold to two buyers"), "{report}");
}

#[test]
fn a_server_that_broke_down_once_does_not_pass() {
    let (status, report) = rush_against_a_liar(Lie::OneBreakdown);
    assert_eq!((status, report["verdict"]["server_errors"].as_u64()), (Some(1), Some(1)), "{report}");
    assert_eq!(report["verdict"]["oversold"], false, "{report}");
}

#[test]
fn a_server_that_grants_holds_and_sells_none_does_not_pass() {
    let (status, report) = rush_against_a_liar(Lie::NothingIsSold);
    assert_eq!(status, Some(1), "{report}");
    assert!(
        report["verdict"]["complaints"].to_string().contains("refused to be sold in time: A-1"),
        "{report}"
    );
}
