//! Bodies that are too large, no JSON, too deep, or of another shape: kinds 3 to 7 and 16.

use leasehold_api::Code;

use crate::venue::{Venue, Write};

const BODY_BYTES_MAX: usize = 64 * 1024;
const EVENT_BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

fn limit(write: &Write) -> usize {
    if write.path == "/v1/events" { EVENT_BODY_BYTES_MAX } else { BODY_BYTES_MAX }
}

/// Kind 3, by what the head says.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_announced_too_large_is_refused_before_it_is_sent() {
    let venue = Venue::open().await;
    for write in venue.all_writes() {
        let head = format!(
            "{} {} HTTP/1.1\r\nhost: localhost\r\n{}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            write.method,
            write.path,
            venue.proofs(),
            limit(&write) + 1
        );
        let what = format!("content-length over the limit on {}", write.path);
        venue.assert_bytes_refused(&what, head.as_bytes(), &[Code::TooLarge]);
    }
}

/// Kind 3, by what arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_chunked_body_that_grows_too_large_is_refused_and_the_connection_closed() {
    let venue = Venue::open().await;
    for write in venue.all_writes() {
        let mut request = format!(
            "{} {} HTTP/1.1\r\nhost: localhost\r\n{}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
            write.method, write.path, venue.proofs()
        )
        .into_bytes();
        let chunk = [b"1000\r\n".as_slice(), &[b' '; 0x1000], b"\r\n"].concat();
        (0..limit(&write) / 0x1000 + 2).for_each(|_| request.extend_from_slice(&chunk));
        let what = format!("a chunked body over the limit on {}", write.path);
        let answer = venue.assert_bytes_refused(&what, &request, &[Code::TooLarge]);
        if !answer.closed && answer.header("connection") != Some("close") {
            venue.complain(format!("{what}: the connection stays open"));
        }
    }
}

/// Kind 4.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_json_is_a_bad_request() {
    let venue = Venue::open().await;
    for write in venue.all_writes() {
        let good = write.good.as_bytes();
        let mut inputs: Vec<(&str, Vec<u8>)> = vec![
            ("truncated", good[..good.len() - 1].to_vec()),
            ("trailing garbage", [good, b"x"].concat()),
            ("two documents", [good, good].concat()),
            ("byte order mark", [b"\xef\xbb\xbf".as_slice(), good].concat()),
            ("not UTF-8", [&good[..good.len() - 2], b"\xff\xfe", &good[good.len() - 2..]].concat()),
            ("UTF-16", good.iter().flat_map(|&byte| [byte, 0]).collect()),
            ("NaN", br#"{"x":NaN}"#.to_vec()),
            ("single quotes", b"{'x':1}".to_vec()),
            ("a comment", [b"/**/".as_slice(), good].concat()),
            ("white space only", b"  ".to_vec()),
        ];
        if write.required {
            inputs.push(("empty", Vec::new()));
        }
        for (what, body) in inputs {
            let bad =
                venue.bad(write.method, &write.path, body, what).header("content-type", "application/json");
            venue.assert_refused(&bad, &[Code::BadRequest]);
        }
    }
}

/// Kind 4, for what takes no body: one that was read and passed over could mean something else to who sent it.
#[tokio::test(flavor = "multi_thread")]
async fn a_removal_with_a_body_is_a_bad_request() {
    let venue = Venue::open().await;
    for write in venue.removals() {
        for body in ["{}", "null", "[]", r#"{"reason":"test"}"#, write.good] {
            venue.assert_refused(&venue.bad(write.method, &write.path, body, "a body"), &[Code::BadRequest]);
        }
    }
}

/// Kind 5.
#[tokio::test(flavor = "multi_thread")]
async fn bombs_are_refused_quickly() {
    let venue = Venue::open().await;
    for write in venue.all_writes() {
        let inputs: Vec<(&str, Vec<u8>)> = vec![
            ("100,000 open brackets", vec![b'['; 100_000]),
            ("60,000 open brackets", vec![b'['; 60_000]),
            ("60,000 open brackets in a field", [br#"{"x":"#.to_vec(), vec![b'['; 60_000]].concat()),
            ("a string of 1 MB", [br#"{"id":""#.as_slice(), &[b'a'; 1 << 20], b"\"}"].concat()),
            (
                "a million elements",
                [br#"{"seats":[0"#.to_vec(), b",0".repeat(1_000_000), b"]}".to_vec()].concat(),
            ),
        ];
        for (what, body) in inputs {
            let bad = venue.bad(write.method, &write.path, body, what);
            venue.assert_refused(&bad, &[Code::BadRequest, Code::TooLarge, Code::Invalid]);
        }
    }
}

/// Kind 6.
#[tokio::test(flavor = "multi_thread")]
async fn a_doubled_field_is_a_bad_request() {
    let venue = Venue::open().await;
    for write in venue.writes() {
        let doubled = format!("{},{}", write.good.trim_end_matches('}'), &write.good[1..]);
        venue.assert_refused(
            &venue.bad(write.method, &write.path, doubled, "doubled field"),
            &[Code::BadRequest],
        );
    }
    let inner = r#"{"items":[{"seat":"A-3","seat":"A-4"}]}"#;
    venue.assert_refused(
        &venue.bad("POST", "/v1/events/gala/holds", inner, "doubled field in an item"),
        &[Code::BadRequest],
    );
    let escaped = r#"{"items":[{"seat":"A-3"}],"ttl_ms":60000,"ttl\u005fms":70000}"#;
    venue.assert_refused(
        &venue.bad("POST", "/v1/events/gala/holds", escaped, "doubled field, once escaped"),
        &[Code::BadRequest],
    );
}

/// Kind 7.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_field_is_a_bad_request() {
    let venue = Venue::open().await;
    for write in venue.writes() {
        for field in ["ttl", "ttl_Ms", "__proto__", ""] {
            let body = format!("{},\"{field}\":1}}", write.good.trim_end_matches('}'));
            venue.assert_refused(
                &venue.bad(write.method, &write.path, body, "unknown field"),
                &[Code::BadRequest],
            );
        }
    }
    for body in [
        r#"{"items":[{"seat":"A-3","row":1}]}"#,
        r#"{"items":[{"best":{"count":1,"zone":"A"}}]}"#,
        r#"{"items":[{"seat":"A-3"}],"tll_ms":60000}"#,
    ] {
        let bad = venue.bad("POST", "/v1/events/gala/holds", body, "unknown field inside");
        venue.assert_refused(&bad, &[Code::BadRequest]);
    }
}

/// Kind 16.
#[tokio::test(flavor = "multi_thread")]
async fn only_plain_json_in_utf_8_is_read() {
    let venue = Venue::open().await;
    for write in venue.all_writes() {
        for content_type in [
            "text/plain",
            "application/xml",
            "application/json; charset=iso-8859-1",
            "application/jsonp",
            "json",
        ] {
            let bad = venue.bad(write.method, &write.path, write.good, content_type);
            venue.assert_refused(&bad.header("content-type", content_type), &[Code::UnsupportedMediaType]);
        }
        for encoding in ["gzip", "br", "deflate", "gzip, gzip"] {
            let bad = venue.bad(write.method, &write.path, write.good, encoding);
            venue.assert_refused(&bad.header("content-encoding", encoding), &[Code::UnsupportedMediaType]);
        }
        let untyped = format!(
            "{} {} HTTP/1.1\r\nhost: localhost\r\n{}\r\ncontent-length: {}\r\n\r\n{}",
            write.method,
            write.path,
            venue.proofs(),
            write.good.len(),
            write.good
        );
        let what = format!("no content-type on {}", write.path);
        venue.assert_bytes_refused(&what, untyped.as_bytes(), &[Code::UnsupportedMediaType]);
        // The right type in another spelling is read, and found to be no JSON.
        let spelled = venue.bad(write.method, &write.path, "{", "charset=UTF-8");
        venue.assert_refused(
            &spelled.header("content-type", "Application/JSON; charset=UTF-8"),
            &[Code::BadRequest],
        );
    }
}
