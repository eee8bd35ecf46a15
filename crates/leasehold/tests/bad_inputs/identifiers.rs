//! Identifiers that are none, in bodies and in paths: kinds 13 to 15.

use leasehold_api::Code;

use crate::venue::Venue;

/// As JSON strings, without the quotes.
fn no_identifiers() -> Vec<(&'static str, String)> {
    vec![
        ("empty", String::new()),
        ("129 bytes", "a".repeat(129)),
        ("NUL", r"a\u0000b".into()),
        ("CR LF", r"a\r\nb".into()),
        ("tab", r"a\tb".into()),
        ("control", r"a\u0007b".into()),
        ("delete", r"a\u007fb".into()),
        ("bidi override", r"a\u202eb".into()),
        ("zero width", r"a\u200bb".into()),
        ("lone surrogate", r"a\ud800b".into()),
        ("not NFC", r"e\u0301".into()),
        ("not ASCII", "é".into()),
        ("space", "a b".into()),
        ("braces", "{a}".into()),
        ("star", "a*".into()),
        ("slash", "a/b".into()),
        ("up", "a/../b".into()),
        ("backslash", r"a\\b".into()),
        ("quote", "a'b".into()),
        ("double quote", r#"a\"b"#.into()),
        ("percent", "a%00".into()),
        ("question mark", "a?b".into()),
        ("hash", "a#b".into()),
        ("semicolon", "a;b".into()),
    ]
}

/// Kinds 13 and 14.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_identifier_is_a_bad_request() {
    let venue = Venue::open().await;
    let hold = format!("/v1/holds/{}", venue.hold.id);
    let confirm = format!("{hold}/confirm");
    let places = [
        ("POST", "/v1/events", r#"{"id":"HERE","seats":["B-1"]}"#),
        (
            "POST",
            "/v1/events",
            r#"{"id":"new","layout":{"sections":[{"name":"HERE","rows":1,"seats_per_row":1}]}}"#,
        ),
        ("POST", "/v1/events", r#"{"id":"new","seats":["B-1","HERE"]}"#),
        ("POST", "/v1/events", r#"{"id":"new","seats":[{"id":"HERE"}]}"#),
        ("POST", "/v1/events", r#"{"id":"new","pools":[{"id":"HERE","capacity":1}]}"#),
        ("POST", "/v1/events/gala/holds", r#"{"items":[{"seat":"A-3"},{"seat":"HERE"}]}"#),
        ("POST", "/v1/events/gala/holds", r#"{"items":[{"seat":"A-3"},{"pool":"HERE"}]}"#),
        ("POST", "/v1/events/gala/blocks", r#"{"seats":["A-3","HERE"]}"#),
        ("PATCH", "/v1/events/gala", r#"{"pools":[{"id":"HERE","capacity":20}]}"#),
        ("POST", "/v1/events/gala/blocks", r#"{"pools":[{"id":"HERE","quantity":1}]}"#),
        ("PATCH", &hold, r#"{"add":[{"seat":"A-3"},{"seat":"HERE"}]}"#),
        ("PATCH", &hold, r#"{"add":[{"pool":"HERE"}]}"#),
        ("PATCH", &hold, r#"{"add":[{"seat":"A-3"}],"remove":[{"seat":"HERE"}]}"#),
        ("PATCH", &hold, r#"{"add":[{"seat":"A-3"}],"remove":[{"pool":"HERE"}]}"#),
        ("POST", &confirm, r#"{"items":[{"seat":"A-1"},{"seat":"HERE"}]}"#),
        ("POST", &confirm, r#"{"items":[{"seat":"A-1"},{"pool":"HERE"}]}"#),
    ];
    // Where a seat need not say where it is, nothing stands for no section and no row.
    let optional = [
        ("POST", "/v1/events", r#"{"id":"new","seats":[{"id":"B-1","section":"HERE"}]}"#),
        ("POST", "/v1/events", r#"{"id":"new","seats":[{"id":"B-1","row":"HERE"}]}"#),
        (
            "POST",
            "/v1/events/gala/holds",
            r#"{"items":[{"seat":"A-3"},{"best":{"count":1,"section":"HERE"}}]}"#,
        ),
        ("PATCH", &hold, r#"{"add":[{"best":{"count":1,"section":"HERE"}}]}"#),
    ];
    let needed = places.iter().map(|place| (place, ""));
    for ((method, path, template), skipped) in needed.chain(optional.iter().map(|place| (place, "empty"))) {
        for (what, id) in no_identifiers().into_iter().filter(|(what, _)| *what != skipped) {
            let bad = venue.bad(method, path, template.replace("HERE", &id), what);
            venue.assert_refused(&bad, &[Code::BadRequest]);
        }
    }
}

/// Kind 13, for sentences: any script, but nothing that is not seen or turns the line around.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_cannot_be_shown_is_a_bad_request() {
    let venue = Venue::open().await;
    let (hold, booking) = (&venue.hold.id, &venue.booking);
    let places = [
        ("POST", "/v1/events".to_owned(), r#"{"id":"new","seats":["B-1"],"name":"HERE"}"#),
        ("POST", "/v1/events/gala/blocks".to_owned(), r#"{"seats":["A-3"],"reason":"HERE"}"#),
        ("POST", format!("/v1/holds/{hold}/revoke"), r#"{"reason":"HERE"}"#),
        ("POST", format!("/v1/bookings/{booking}/cancel"), r#"{"reason":"HERE"}"#),
    ];
    let long = "a".repeat(501);
    for (method, path, template) in places {
        for text in ["", r"a\u0000b", r"a\r\nb", r"a\u0007b", r"a\u202eb", r"a\ud800b", r"e\u0301", &long] {
            let bad = venue.bad(method, &path, template.replace("HERE", text), &text[..text.len().min(20)]);
            venue.assert_refused(&bad, &[Code::BadRequest]);
        }
    }
}

/// Kind 13, for references in the seller's words: printable ASCII.
#[tokio::test(flavor = "multi_thread")]
async fn a_reference_that_is_not_printable_is_a_bad_request() {
    let venue = Venue::open().await;
    let hold = &venue.hold.id;
    let places = [
        ("POST", "/v1/events/gala/holds".to_owned(), r#"{"items":[{"seat":"A-3"}],"holder":"HERE"}"#),
        ("POST", format!("/v1/holds/{hold}/payment"), r#"{"payment_ref":"HERE"}"#),
        ("POST", format!("/v1/holds/{hold}/payment/failed"), r#"{"payment_ref":"HERE"}"#),
        ("POST", format!("/v1/holds/{hold}/confirm"), r#"{"payment_ref":"HERE"}"#),
        ("POST", format!("/v1/holds/{hold}/confirm"), r#"{"order_ref":"HERE"}"#),
        ("POST", "/v1/locks/new".to_owned(), r#"{"label":"HERE"}"#),
    ];
    for (method, path, template) in places {
        for reference in [r"a\u0000b", r"a\r\nb", r"a\u202eb", r"a\ud800b", r"e\u0301", "é"] {
            let bad = venue.bad(method, &path, template.replace("HERE", reference), reference);
            venue.assert_refused(&bad, &[Code::BadRequest]);
        }
        let bad = venue.bad(method, &path, template.replace("HERE", &"a".repeat(10_000)), "10,000 letters");
        venue.assert_refused(&bad, &[Code::BadRequest, Code::Invalid]);
    }
}

/// Kind 15.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_in_another_spelling_finds_nothing() {
    let venue = Venue::open().await;
    let hold = &venue.hold.id;
    let upper = hold.to_uppercase();
    let booking = &venue.booking;
    let mut paths = vec![
        "/v1/events/GALA".to_owned(),
        "/v1/events/Gala".to_owned(),
        "/v1/events/gala/".to_owned(),
        "/v1/events//gala".to_owned(),
        "//v1/events/gala".to_owned(),
        "/v1/events/gala%2f".to_owned(),
        "/v1/events/gala%00".to_owned(),
        "/v1/events/gala%20".to_owned(),
        "/v1/events/ga%0d%0ala".to_owned(),
        "/v1/events/%ff".to_owned(),
        "/v1/events/x/../gala".to_owned(),
        "/v1/events/./gala".to_owned(),
        "/V1/events/gala".to_owned(),
        "/v1/Events/gala".to_owned(),
        "/v2/events/gala".to_owned(),
        "/v1".to_owned(),
        "/v1/".to_owned(),
        "/v1/nothing".to_owned(),
        format!("/v1/events/{}", "a".repeat(129)),
        format!("/v1/events/{}", "a".repeat(8_000)),
        format!("/v1/holds/{hold}/"),
        format!("/v1/holds/{hold}x"),
        format!("/v1/holds/%20{hold}"),
        format!("/v1/holds/{}", &hold[..hold.len() - 1]),
        format!("/v1/holds/{}", "a".repeat(8_000)),
        format!("/v1/bookings/{booking}/"),
        format!("/v1/bookings/{}", &booking[..booking.len() - 1]),
        format!("/v1/bookings/{hold}"),
        format!("/v1/holds/{booking}"),
    ];
    if upper != *hold {
        paths.push(format!("/v1/holds/{upper}"));
    }
    for write in venue.writes() {
        let path = &write.path;
        // Names of locks may have a slash.
        let slash = if path.contains("/locks/") { "/" } else { "%2f" };
        for other in [path.to_uppercase(), format!("{path}/"), format!("/{path}"), format!("{path}{slash}")] {
            let bad = venue.bad(write.method, &other, write.good, "another spelling");
            venue.assert_refused(&bad, &[Code::NotFound]);
        }
    }
    for path in paths {
        venue.assert_refused(&venue.bad("GET", &path, "", "another spelling"), &[Code::NotFound]);
    }
}

/// Kinds 13 to 15, for the names of locks: any letters but control characters, in one path segment.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_a_lock_is_refused() {
    let venue = Venue::open().await;
    let long = "a".repeat(513);
    let escaped_long = "%61".repeat(513);
    for name in [
        "%00",
        "a%0d%0ab",
        "a%09b",
        "%7f",
        "%c2%85",
        "%ff",
        "%c3",
        "%",
        "%2",
        "%zz",
        "%u0041",
        &long,
        &escaped_long,
    ] {
        for (method, body) in [("POST", "{}"), ("PATCH", r#"{"ttl_ms":60000}"#), ("DELETE", ""), ("GET", "")]
        {
            let bad = venue.bad(method, &format!("/v1/locks/{name}"), body, "no name");
            venue.assert_refused(&bad, &[Code::BadRequest]);
        }
    }
    for path in
        ["/v1/locks/", "/v1/locks/job/", "/v1/locks//job", "/v1/locks/a/b", "/v1/Locks/job", "/v1/lock%73"]
    {
        venue.assert_refused(&venue.bad("GET", path, "", "another spelling"), &[Code::NotFound]);
    }
}

/// Kind 14: what means something to a store means itself in a lock's name, and no two names are one lock.
#[tokio::test(flavor = "multi_thread")]
async fn no_two_names_are_one_lock() {
    let venue = Venue::open().await;
    let redis = leasehold_testkit::servers::RedisServer::start();
    let on_redis = leasehold_testkit::Stage::open_with(
        std::path::Path::new(env!("CARGO_BIN_EXE_leasehold")),
        |launch| launch.args(&["--locks", &redis.url()]),
    );
    let names = [
        "a",
        "A",
        "{a}",
        "a}",
        "a*",
        "a?",
        "[a]",
        "a/b",
        "a/../b",
        "..",
        "a%2Fb",
        "a'b",
        "a\"b",
        "a\\b",
        "a b",
        " a",
        "a ",
        "a;b",
        "a#b",
        "e\u{301}",
        "\u{e9}",
        "a\u{202e}b",
        "a\u{200b}b",
        "lock:a",
        "a:fence",
        "a:queue",
    ];
    for address in [venue.stage.address(), on_redis.address()] {
        let mut client = leasehold_client::Client::new(address);
        let mut owners = std::collections::HashSet::new();
        let wanted = leasehold_api::AcquireLock {
            ttl_ms: Some(600_000),
            wait_ms: Some(0),
            ..leasehold_api::AcquireLock::default()
        };
        for name in names {
            let grant = client.acquire_lock(name, &wanted, None).await;
            let grant = grant.unwrap_or_else(|error| panic!("{name:?} is another lock: {error:?}"));
            assert_eq!(grant.name, name);
            owners.insert(grant.owner);
        }
        assert_eq!(owners.len(), names.len());
        let mut listed: Vec<String> = Vec::new();
        let mut cursor = None;
        loop {
            let page = client.locks("", cursor.as_deref()).await.unwrap();
            listed.extend(page.locks.into_iter().map(|lock| lock.name));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        for name in names {
            assert!(listed.iter().any(|found| found == name), "{name:?} is not listed: {listed:?}");
        }
    }
}
