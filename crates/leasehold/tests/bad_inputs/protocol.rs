//! Methods, versions, idempotency keys and queries that are none: kinds 17, 18 and 25.

use leasehold_api::Code;

use crate::venue::Venue;

/// Kind 17.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_method_is_told_the_right_ones() {
    let mut venue = Venue::open().await;
    // What is not in the description: the pages, and what describes the rest.
    let mut routes: Vec<(String, Vec<String>)> =
        ["/console", "/events/gala", "/web/base.css", "/docs", "/openapi.json"]
            .map(|path| (path.to_owned(), vec!["GET".to_owned()]))
            .into();
    let described = venue.desk.send(leasehold_client::Request::get("/openapi.json")).await.json();
    for (path, methods) in described["paths"].as_object().unwrap() {
        let path = path.replace("{event}", "gala").replace("{hold}", &venue.hold.id).replace("{name}", "job");
        let path = path.replace("{booking}", &venue.booking).replace("{block}", &venue.block);
        routes
            .push((path, methods.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect()));
    }
    assert!(routes.len() > 25, "{routes:?}");
    for (path, allowed) in routes {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"] {
            if allowed.iter().any(|allowed| allowed == method) {
                continue;
            }
            let bad = venue.bad(method, &path, "", "method");
            let answer = venue.assert_refused(&bad, &[Code::MethodNotAllowed]);
            let allow = answer.header("allow").unwrap_or_default().to_owned();
            let told: Vec<&str> = allow.split(',').map(str::trim).collect();
            if !allowed.iter().all(|method| told.contains(&method.as_str())) {
                venue.complain(format!("{path} allows {allowed:?}, the answer says {allow:?}"));
            }
        }
    }
}

/// What the other tests send wrongly is every write that the API describes with a body, and every removal.
#[tokio::test(flavor = "multi_thread")]
async fn no_write_is_left_out() {
    let mut venue = Venue::open().await;
    let described = venue.desk.send(leasehold_client::Request::get("/openapi.json")).await.json();
    let mut left: Vec<String> = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        let writes = methods
            .as_object()
            .unwrap()
            .iter()
            .filter(|(method, described)| described.get("requestBody").is_some() || *method == "delete");
        left.extend(writes.map(|(method, _)| format!("{} {path}", method.to_uppercase())));
    }
    for write in venue.all_writes() {
        let path = write.path.replace("/gala", "/{event}").replace(&venue.hold.id, "{hold}");
        let path = path.replace(&venue.booking, "{booking}").replace(&venue.block, "{block}");
        let path = path.replace("/locks/new", "/locks/{name}").replace("/locks/job", "/locks/{name}");
        let described = format!("{} {path}", write.method);
        let place = left.iter().position(|route| *route == described);
        left.remove(place.unwrap_or_else(|| panic!("{described} is not described as a write")));
    }
    assert_eq!(left, Vec::<String>::new());
}

/// Kind 17.
#[tokio::test(flavor = "multi_thread")]
async fn connect_is_refused() {
    let venue = Venue::open().await;
    let before = venue.state();
    let request = b"CONNECT example.com:443 HTTP/1.1\r\nhost: example.com:443\r\n\r\n";
    let answer =
        leasehold_testkit::exchange(venue.stage.address(), request, std::time::Duration::from_secs(5));
    assert!((400..500).contains(&answer.status), "{answer:?}");
    assert_eq!(venue.state(), before);
}

/// Kind 18.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_idempotency_key_is_refused() {
    let venue = Venue::open().await;
    let long = "k".repeat(256);
    for write in venue.writes() {
        for key in ["", long.as_str(), "é", "a b", "a\tb"] {
            let bad = venue.bad(write.method, &write.path, write.good, "idempotency key");
            venue.assert_refused(&bad.header("idempotency-key", key), &[Code::IdempotencyInvalid]);
        }
        let two = venue.bad(write.method, &write.path, write.good, "two idempotency keys");
        let two = two.header("idempotency-key", "one").header("idempotency-key", "two");
        venue.assert_refused(&two, &[Code::IdempotencyInvalid]);
    }
    for removal in venue.removals() {
        let release = venue.bad(removal.method, &removal.path, "", "idempotency key");
        venue.assert_refused(&release.header("idempotency-key", &long), &[Code::IdempotencyInvalid]);
    }
}

/// Kind 18.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_used_for_another_body_is_refused() {
    let mut venue = Venue::open().await;
    let hold = |seat: &str| {
        let body = serde_json::json!({"items": [{"seat": seat}], "ttl_ms": 600_000});
        leasehold_client::Request::post("/v1/events/gala/holds", &body).idempotency_key("used")
    };
    assert_eq!(venue.desk.send(hold("A-3")).await.status, 201);
    let bad = venue.bad("POST", "/v1/events/gala/holds", r#"{"items":[{"seat":"A-4"}]}"#, "other body");
    venue.assert_refused(&bad.header("idempotency-key", "used"), &[Code::IdempotencyMismatch]);
    let lock = leasehold_client::Request::post("/v1/locks/new", &serde_json::json!({"ttl_ms": 3_600_000}));
    assert_eq!(venue.desk.send(lock.idempotency_key("used")).await.status, 201);
    let bad = venue.bad("POST", "/v1/locks/new", r#"{"ttl_ms":1000}"#, "other body");
    venue.assert_refused(&bad.header("idempotency-key", "used"), &[Code::IdempotencyMismatch]);
}

/// Kind 25.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_out_of_range_is_invalid() {
    let venue = Venue::open().await;
    for path in [
        "/v1/events?limit=0",
        "/v1/events?limit=-1",
        "/v1/events?limit=1000000000",
        "/v1/events?limit=ten",
        "/v1/events?after=%00",
        "/v1/events/gala/availability?since=yesterday",
        "/v1/events/gala/availability?since=-1",
        "/v1/events/gala/availability?since=1-99999999999999999999999",
        "/v1/events/gala/availability?since=2026-02-30T23:59:60",
        "/v1/events/gala?seats=perhaps",
        "/v1/events/gala/holds?limit=0",
        "/v1/events/gala/holds?limit=-1",
        "/v1/events/gala/holds?limit=1001",
        "/v1/events/gala/holds?after=first",
        "/v1/events/gala/blocks?limit=1001",
        "/v1/events/gala/holds?after=18446744073709551616",
        "/v1/events/gala/refunds?limit=0",
        "/v1/events/gala/refunds?limit=1e9",
        "/v1/events/gala/refunds?after=-1",
        "/v1/events/gala/stream?since=yesterday",
        "/v1/events/gala/stream?since=1-99999999999999999999999",
        "/v1/events/gala/stream?since=1",
        "/v1/operator/events/gala/log?limit=0",
        "/v1/operator/events/gala/log?limit=-1",
        "/v1/operator/events/gala/log?limit=501",
        "/v1/operator/events/gala/log?limit=1e9",
        "/v1/operator/events/gala/log?before=yesterday",
        "/v1/operator/events/gala/log?before=1-99999999",
        "/v1/operator/events/gala/log?before=7-1",
        "/v1/operator/events/gala/log?seat=A-1&holder=ada",
        "/v1/operator/events/gala/log?holder=%ff",
        "/v1/operator/events/gala/log?holder=%2",
        "/v1/locks?limit=0",
        "/v1/locks?limit=-1",
        "/v1/locks?limit=1001",
        "/v1/locks?limit=1e9",
        "/v1/locks?prefix=%00",
        "/v1/locks?prefix=%ff",
        "/v1/locks?prefix=%2",
        "/v1/locks?cursor=",
        "/v1/locks?cursor=job",
        "/v1/locks?cursor=0000000000000000",
        "/v1/locks?cursor=00000000000000006a6f62",
        "/v1/locks?cursor=%00%00",
    ] {
        venue.assert_refused(&venue.bad("GET", path, "", "query"), &[Code::Invalid]);
    }
    for path in [
        "/v1/operator/events/gala/log?sheat=A-1",
        "/v1/operator/events/gala/log?seat=A-1&seat=A-2",
        "/v1/operator/events/gala/log?holder=",
        "/v1/operator/events/gala/log?holder=a%20b",
        "/v1/operator/events/gala/log?holder=%00",
        "/v1/operator/events/gala/log?order=%C3%A9",
    ] {
        venue.assert_refused(&venue.bad("GET", path, "", "query"), &[Code::BadRequest]);
    }
    let (event, _) = venue.state();
    let event: leasehold_api::EventView = serde_json::from_str(&event).unwrap();
    let (epoch, number) = event.version.rsplit_once('-').expect("a version is epoch-number");
    let future = format!("{epoch}-{}", number.parse::<u64>().unwrap() + 1_000);
    for path in ["/v1/events/gala/availability", "/v1/events/gala/stream"] {
        let since = format!("{path}?since={future}");
        venue.assert_refused(&venue.bad("GET", &since, "", "since in the future"), &[Code::Invalid]);
    }
    for seen in ["", "yesterday", "1", "1-", "-1", "1-x", "caf\u{e9}", &future] {
        let bad = venue.bad("GET", "/v1/events/gala/stream", "", "last event").header("last-event-id", seen);
        venue.assert_refused(&bad, &[Code::Invalid]);
    }
}
