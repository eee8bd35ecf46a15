//! Requests whose frame is wrong, so that two readers could disagree where they end, or whose end never comes: kinds 23 and 24.

use std::time::Duration;

use leasehold_testkit::{RawConnection, exchange};

use crate::venue::{Venue, Write};

const BODY: &str = r#"{"items":[{"seat":"A-3"}]}"#;
const PATH: &str =
    "POST /v1/events/gala/holds HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

/// Refused by the HTTP layer, which need not know problem documents, and the connection is over.
fn assert_cut_off(venue: &Venue, what: &str, request: &[u8], statuses: &[u16]) {
    let before = venue.state();
    let mut connection = RawConnection::open(venue.stage.address()).unwrap();
    // The server may close before it has read everything.
    let _ = connection.write(request);
    match connection.read_answer(Duration::from_secs(8)) {
        Some(answer) if statuses.contains(&answer.status) => {}
        Some(answer) => venue.complain(format!("{what}: {answer:?}, expected {statuses:?}")),
        None => venue.complain(format!("{what}: no answer")),
    }
    if !connection.closed_within(Duration::from_secs(8)) {
        venue.complain(format!("{what}: the connection stays open"));
    }
    if venue.state() != before {
        venue.complain(format!("{what}: the state has changed"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_two_lengths_is_cut_off() {
    let venue = Venue::open().await;
    let length = BODY.len();
    for (what, headers) in [
        ("two lengths", format!("content-length: {length}\r\ncontent-length: 5\r\n")),
        ("a negative length", "content-length: -1\r\n".to_owned()),
        ("a length with a sign", format!("content-length: +{length}\r\n")),
        ("a length in hexadecimal", "content-length: 0x1a\r\n".to_owned()),
        ("a length of 2^64", "content-length: 18446744073709551616\r\n".to_owned()),
        ("two lengths in one line", format!("content-length: {length}, 5\r\n")),
        ("an unknown transfer encoding", "transfer-encoding: identity\r\n".to_owned()),
    ] {
        let request = format!("{PATH}{headers}\r\n{BODY}");
        assert_cut_off(&venue, what, request.as_bytes(), &[400, 413, 501]);
    }
}

/// RFC 9112 allows two ways: refuse it, or read it as chunked and close. What must not happen is a second request.
#[tokio::test(flavor = "multi_thread")]
async fn a_length_beside_chunks_smuggles_nothing() {
    let venue = Venue::open().await;
    let before = venue.state();
    let smuggled = format!("{PATH}content-length: {}\r\n\r\n{BODY}", BODY.len());
    for headers in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
    ] {
        let request = format!("{PATH}{headers}\r\n0\r\n\r\n{smuggled}");
        let mut connection = RawConnection::open(venue.stage.address()).unwrap();
        connection.write(request.as_bytes()).unwrap();
        let answer = connection.read_answer(Duration::from_secs(5)).expect("an answer");
        assert_eq!(answer.status, 400, "an empty body is no JSON, and the frame is wrong: {answer:?}");
        assert!(connection.closed_within(Duration::from_secs(8)), "the connection stays open");
        assert!(connection.read_answer(Duration::from_millis(100)).is_none(), "there was a second answer");
        assert_eq!(venue.state(), before, "the second request took effect");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_folded_or_broken_is_cut_off() {
    let venue = Venue::open().await;
    for (what, request) in [
        ("a folded header", "GET /v1/events/gala HTTP/1.1\r\nhost: localhost\r\nx-a: 1\r\n 2\r\n\r\n"),
        ("a space before the colon", "GET /v1/events/gala HTTP/1.1\r\nhost: localhost\r\nx-a : 1\r\n\r\n"),
        ("a NUL in a header", "GET /v1/events/gala HTTP/1.1\r\nhost: localhost\r\nx-a: 1\x002\r\n\r\n"),
        ("no colon", "GET /v1/events/gala HTTP/1.1\r\nhost: localhost\r\nxyz\r\n\r\n"),
        ("no HTTP", "hello server, how are you\r\n\r\n"),
        ("a space in the path", "GET /v1/events/ga la HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        ("HTTP/3.7", "GET /v1/events/gala HTTP/3.7\r\nhost: localhost\r\n\r\n"),
    ] {
        assert_cut_off(&venue, what, request.as_bytes(), &[400, 505]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_chunk_is_cut_off() {
    let venue = Venue::open().await;
    for (what, chunks) in [
        ("a size that is none", "xyz\r\n{}\r\n0\r\n\r\n"),
        ("a negative size", "-1\r\n{}\r\n0\r\n\r\n"),
        ("a size over 64 bits", "fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
        ("a chunk longer than it says", "1\r\n{}\r\n0\r\n\r\n"),
    ] {
        let request = format!("{PATH}transfer-encoding: chunked\r\n\r\n{chunks}");
        assert_cut_off(&venue, what, request.as_bytes(), &[400, 413]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_too_large_is_cut_off() {
    let venue = Venue::open().await;
    let many: String = (0..200).map(|number| format!("x-header-{number}: 1\r\n")).collect();
    let long = format!("x-long: {}\r\n", "a".repeat(20 * 1024));
    for (what, headers) in [("200 headers", many), ("a head of 20 KiB", long)] {
        let request = format!("GET /v1/events/gala HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        assert_cut_off(&venue, what, request.as_bytes(), &[431, 400]);
    }
    let path = format!("GET /v1/events/{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(70_000));
    assert_cut_off(&venue, "a path of 70 kB", path.as_bytes(), &[414, 431, 400]);
}

/// The server is as it was after all of this.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_broken_requests_leave_the_server_as_it_was() {
    let mut venue = Venue::open().await;
    let mut random = leasehold_testkit::Random::new(leasehold_testkit::Random::seed_of_this_run("framing"));
    let good = format!("{PATH}content-length: {}\r\n\r\n{BODY}", BODY.len()).replace("A-3", "A-99");
    let before = venue.state();
    for _ in 0..1_000 {
        let mut bytes = good.clone().into_bytes();
        for _ in 0..random.within(1..6) {
            let place = random.index(bytes.len());
            bytes[place] = u8::try_from(random.within(0..256)).expect("a byte");
        }
        let mut connection = RawConnection::open(venue.stage.address()).unwrap();
        let _ = connection.write(&bytes);
        let _ = connection.half_close();
        if let Some(answer) = connection.read_answer(Duration::from_secs(12)) {
            assert!(answer.status < 500, "{answer:?} to {:?}", String::from_utf8_lossy(&bytes));
        }
    }
    assert!(venue.stage.server.is_running());
    assert!(!venue.stage.server.log().contains("panicked"), "{}", venue.stage.server.log());
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(exchange(venue.stage.address(), request, Duration::from_secs(5)).status, 200);
    assert_eq!(venue.state(), before);
    let hold = venue.desk.granted("gala", "A-3", 60_000).await;
    assert_eq!(venue.desk.show_hold(&hold).await.state, "held");
}

/// Kind 24: half of a body, and then nothing. `slow_clients.rs` has bodies that come byte by byte.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_ends_is_told_so_and_changes_nothing() {
    let venue = Venue::open().await;
    let before = venue.state();
    let begin = |write: Write| {
        let Write { method, path, good, .. } = &write;
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{}\r\n", venue.proofs());
        let framed = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", good.len() + 1);
        let mut connection = RawConnection::open(venue.stage.address()).unwrap();
        connection.write(format!("{head}{framed}{good}").as_bytes()).unwrap();
        (write, connection)
    };
    // All at once: each takes as long as a body may.
    let waiting: Vec<(Write, RawConnection)> = venue.all_writes().into_iter().map(begin).collect();
    for (write, mut connection) in waiting {
        let what = format!("half a body on {} {}", write.method, write.path);
        match connection.read_answer(Duration::from_secs(15)) {
            Some(answer) if answer.code().as_deref() == Some("timeout") && answer.status == 408 => {}
            other => venue.complain(format!("{what}: {other:?}")),
        }
        if !connection.closed_within(Duration::from_secs(8)) {
            venue.complain(format!("{what}: the connection stays open"));
        }
    }
    assert_eq!(venue.state(), before);
}
