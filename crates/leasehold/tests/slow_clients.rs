//! Clients that send slowly or not at all: they are shown out, and nobody else waits for them.

use std::path::Path;
use std::time::{Duration, Instant};

use leasehold_api::{CreateEvent, SeatSpec};
use leasehold_testkit::{RawConnection, Stage, exchange, raise_open_files_limit, request_bytes};

/// The server's own limits are 5 s for a head and 10 s for a body.
const CLOSED_WITHIN: Duration = Duration::from_secs(15);
const SLOW: usize = 50;
const IDLE: usize = 2_000;

async fn open() -> Stage {
    // The server inherits the limit.
    raise_open_files_limit(8_192);
    let stage = Stage::open(Path::new(env!("CARGO_BIN_EXE_leasehold")));
    let seats = vec![SeatSpec::Id("A-1".to_owned())];
    stage.desk(0).create_event(&CreateEvent { id: "gala".to_owned(), seats, ..CreateEvent::default() }).await;
    stage
}

/// Asks on new connections while the others are slow; the slower half must still be quick.
fn assert_served_quickly(address: &str) {
    let ask = || {
        let begun = Instant::now();
        let answer =
            exchange(address, &request_bytes("GET", "/v1/events/gala", &[], b""), Duration::from_secs(5));
        assert_eq!(answer.status, 200);
        begun.elapsed()
    };
    let mut times: Vec<Duration> = (0..100).map(|_| ask()).collect();
    times.sort_unstable();
    println!("median {:?}, 99 of 100 {:?}", times[50], times[98]);
    assert!(times[50] < Duration::from_millis(200), "the median is {:?}", times[50]);
    assert!(times[98] < Duration::from_secs(1), "99 of 100 took up to {:?}", times[98]);
}

/// The server has this many connections open at once, and has turned none away.
fn assert_connected(address: &str, count: usize) {
    let metric = |name: &str| -> usize {
        let metrics = exchange(address, &request_bytes("GET", "/metrics", &[], b""), Duration::from_secs(5));
        let text = String::from_utf8(metrics.body.to_vec()).unwrap();
        let value =
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::to_owned);
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    };
    // The one that asks is open, too. The kernel takes connections faster than the server does.
    let deadline = Instant::now() + Duration::from_secs(10);
    while metric("leasehold_http_connections") <= count {
        assert!(Instant::now() < deadline, "the server never had {count} connections open at once");
    }
    assert_eq!(metric("leasehold_http_turned_away_total"), 0);
}

/// Feeds every connection a byte now and then until all are closed; how many of them were.
fn feed_until_closed(mut connections: Vec<RawConnection>, byte: &[u8]) -> usize {
    let begun = Instant::now();
    let all = connections.len();
    while !connections.is_empty() && begun.elapsed() < CLOSED_WITHIN {
        connections.retain_mut(|connection| {
            connection.write(byte).is_ok() && !connection.closed_within(Duration::from_millis(2))
        });
        std::thread::sleep(Duration::from_millis(300));
    }
    all - connections.len()
}

fn connect(address: &str, count: usize, first_bytes: &[u8]) -> Vec<RawConnection> {
    let open = |_| {
        let mut connection = RawConnection::open(address).expect("the server accepts connections");
        connection.write(first_bytes).expect("a new connection takes a few bytes");
        connection
    };
    (0..count).map(open).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_heads_are_closed_and_hold_up_nobody() {
    let stage = open().await;
    let slow = connect(stage.address(), SLOW, b"GET /v1/events/gala HTTP/1.1\r\nhost: localhost\r\nx-slow: ");
    assert_connected(stage.address(), SLOW);
    assert_served_quickly(stage.address());
    assert_eq!(feed_until_closed(slow, b"a"), SLOW, "slow heads are closed within {CLOSED_WITHIN:?}");
    assert_served_quickly(stage.address());
    stage.judge().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_are_closed_and_hold_up_nobody() {
    let stage = open().await;
    let head =
        b"POST /v1/events/gala/holds HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        content-length: 1000\r\n\r\n{";
    let slow = connect(stage.address(), SLOW, head);
    assert_connected(stage.address(), SLOW);
    assert_served_quickly(stage.address());
    assert_eq!(feed_until_closed(slow, b" "), SLOW, "slow bodies are closed within {CLOSED_WITHIN:?}");
    assert_eq!(stage.desk(0).show_event("gala").await.seats.free, 1);
    stage.judge().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_comes_is_told_so() {
    let stage = open().await;
    let head =
        b"POST /v1/events/gala/holds HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        content-length: 1000\r\n\r\n{";
    let mut connection = RawConnection::open(stage.address()).unwrap();
    connection.write(head).unwrap();
    let answer = connection.read_answer(CLOSED_WITHIN).expect("408 before the connection is closed");
    assert_eq!((answer.status, answer.code().as_deref()), (408, Some("timeout")));
    assert!(connection.closed_within(Duration::from_secs(2)));
    stage.judge().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_cut_off_by_a_half_close_changes_nothing() {
    let stage = open().await;
    let head =
        b"POST /v1/events/gala/holds HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        content-length: 1000\r\n\r\n{\"items\":[{\"seat\":\"A-1\"}]}";
    let mut connection = RawConnection::open(stage.address()).unwrap();
    connection.write(head).unwrap();
    connection.half_close().unwrap();
    assert!(connection.closed_within(CLOSED_WITHIN), "a connection without a future is closed");
    assert_eq!(stage.desk(0).show_event("gala").await.seats.free, 1);
    stage.judge().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_idle_connections_hold_up_nobody() {
    let stage = open().await;
    let idle = connect(stage.address(), IDLE, b"");
    assert_connected(stage.address(), IDLE);
    assert_served_quickly(stage.address());
    let hold = stage.desk(1).granted("gala", "A-1", 60_000).await;
    assert_eq!(stage.desk(1).show_hold(&hold).await.state, "held");
    drop(idle);
    assert_served_quickly(stage.address());
    stage.judge().await.assert_clean();
}
