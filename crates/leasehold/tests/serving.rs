//! The server as a whole: availability, limits, proxies, counters, documents, and stopping without losing anything.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use leasehold_api::{
    Availability, BeginPayment, ConfirmHold, CreateEvent, CreateHold, EventView, HoldView, ItemSpec,
    LayoutSpec, PaymentFailed, PolicySpec, SectionSpec,
};
use leasehold_client::{Client, Request, Response};
use leasehold_testkit::{Launch, RawConnection, ServerProcess, exchange, request_bytes};

fn start(args: &[&str]) -> (tempfile::TempDir, ServerProcess) {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on(&folder.path().join("serving.db"), args);
    (folder, server)
}

fn start_on(data: &Path, args: &[&str]) -> ServerProcess {
    Launch::new(Path::new(env!("CARGO_BIN_EXE_leasehold")), data).args(args).start()
}

async fn create_event(client: &mut Client, id: &str, rows: u32, seats_per_row: u32) {
    let sections = vec![SectionSpec { name: "A".to_owned(), rows, seats_per_row }];
    let layout = Some(LayoutSpec { sections });
    let event = CreateEvent { id: id.to_owned(), layout, ..CreateEvent::default() };
    let created = client.send(Request::post("/v1/events", &event)).await.unwrap();
    assert_eq!(created.status, 201, "{created:?}");
}

fn hold(event: &str, seat: &str) -> Request {
    let body = CreateHold { items: vec![ItemSpec::seat(seat)], ..CreateHold::default() };
    Request::post(format!("/v1/events/{event}/holds"), &body)
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn fifty_thousand_seats_fit_in_one_small_answer_and_changes_in_a_smaller_one() {
    let (_folder, server) = start(&[]);
    let mut client = Client::new(server.address());
    create_event(&mut client, "arena", 500, 100).await;
    let path = "/v1/events/arena/availability";
    let whole = client.send(Request::get(path).header("accept-encoding", "gzip")).await.unwrap();
    assert_eq!((whole.status, header(&whole, "content-encoding")), (200, "gzip"));
    assert!(whole.body.len() < 4_096, "{} bytes", whole.body.len());
    let mut text = String::new();
    flate2::read::GzDecoder::new(&whole.body[..]).read_to_string(&mut text).unwrap();
    let seen: Availability = serde_json::from_str(&text).unwrap();
    assert_eq!(seen.seats.as_ref().unwrap().len(), 50_000);

    let tag = header(&whole, "etag").to_owned();
    let same = client.send(Request::get(path).header("if-none-match", &tag)).await.unwrap();
    assert_eq!((same.status, same.body.len()), (304, 0));
    assert_eq!(client.send(hold("arena", "A-500-100")).await.unwrap().status, 201);
    let other = client.send(Request::get(path).header("if-none-match", &tag)).await.unwrap();
    assert_eq!(other.status, 200, "the seats changed, so the tag did");
    let delta = client.send(Request::get(format!("{path}?since={}", seen.version))).await.unwrap();
    let delta: Availability = delta.json().unwrap();
    assert!(!delta.full && delta.seats.is_none());
    let changes = delta.changes.unwrap();
    assert_eq!((changes.len(), changes[0].0, changes[0].1), (1, 49_999, 'h'));
}

#[tokio::test]
async fn many_changes_are_compressed_and_too_many_are_told_as_all_seats() {
    let (_folder, server) = start(&[]);
    let mut client = Client::new(server.address());
    create_event(&mut client, "arena", 200, 100).await;
    let path = "/v1/events/arena/availability";
    let before: Availability = client.send(Request::get(path)).await.unwrap().json().unwrap();
    let since = format!("{path}?since={}", before.version);
    let block = async |rows: std::ops::Range<u32>| {
        let seats: Vec<String> =
            rows.flat_map(|row| (1..=100).map(move |seat| format!("A-{row}-{seat}"))).collect();
        let body = serde_json::json!({ "seats": seats });
        let mut client = Client::new(server.address());
        let answer = client.send(Request::post("/v1/events/arena/blocks", &body)).await.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
    };

    block(1..13).await;
    let plain = client.send(Request::get(since.clone())).await.unwrap();
    let packed = client.send(Request::get(since.clone()).header("accept-encoding", "gzip")).await.unwrap();
    assert_eq!((header(&plain, "content-encoding"), header(&packed, "content-encoding")), ("", "gzip"));
    assert_eq!(header(&packed, "vary"), "accept-encoding");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text.as_bytes(), &plain.body[..]);
    let delta: Availability = plain.json().unwrap();
    assert_eq!((delta.full, delta.changes.unwrap().len()), (false, 1_200));

    block(13..20).await;
    let whole = client.send(Request::get(since)).await.unwrap();
    assert!(!header(&whole, "etag").is_empty());
    let whole: Availability = whole.json().unwrap();
    assert!(whole.full && whole.changes.is_none());
    assert_eq!(whole.seats.unwrap().matches('b').count(), 1_900);
}

#[tokio::test]
async fn an_address_has_its_rate_and_a_forged_header_gives_it_no_other() {
    let (_folder, server) = start(&["--address-rate", "1:3"]);
    let mut client = Client::new(server.address());
    let mut limited = None;
    for attempt in 0..6 {
        let request = Request::get("/v1/events").header("x-forwarded-for", format!("203.0.113.{attempt}"));
        let answer = client.send(request).await.unwrap();
        if answer.status == 429 {
            limited = Some(answer);
        }
    }
    let limited = limited.expect("six requests in a moment are more than a burst of three");
    assert_eq!(limited.code().as_deref(), Some("quota-exceeded"));
    assert!(header(&limited, "retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!(header(&limited, "ratelimit-policy"), "\"address\";q=1;w=1");
    assert!(header(&limited, "ratelimit").starts_with("\"address\";r=0;t="));
    for probe in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(
            client.send(Request::get(probe)).await.unwrap().status,
            200,
            "a probe is not load: {probe}"
        );
    }
}

#[tokio::test]
async fn a_trusted_proxy_speaks_for_its_clients() {
    let (_folder, server) = start(&["--address-rate", "1:2", "--trusted-proxies", "127.0.0.0/8"]);
    let mut client = Client::new(server.address());
    for number in 0..8 {
        let request = Request::get("/v1/events").header("x-forwarded-for", format!("203.0.113.{number}"));
        assert_eq!(client.send(request).await.unwrap().status, 200, "each address has its own rate");
    }
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let request = Request::get("/v1/events").header("x-forwarded-for", "198.51.100.1");
        statuses.push(client.send(request).await.unwrap().status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[tokio::test]
async fn an_event_has_its_rate() {
    let (_folder, server) = start(&["--event-rate", "1:2"]);
    let mut client = Client::new(server.address());
    create_event(&mut client, "hot", 1, 10).await;
    create_event(&mut client, "calm", 1, 10).await;
    let mut answers = Vec::new();
    for seat in 1..=5 {
        answers.push(client.send(hold("hot", &format!("A-1-{seat}"))).await.unwrap());
    }
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert!(statuses.starts_with(&[201, 201]) && statuses.contains(&429), "{statuses:?}");
    let limited = answers.iter().find(|answer| answer.status == 429).unwrap();
    assert_eq!(limited.code().as_deref(), Some("quota-exceeded"));
    assert!(header(limited, "retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!(header(limited, "ratelimit-policy"), "\"event\";q=1;w=1");
    assert!(header(limited, "ratelimit").starts_with("\"event\";r=0;t="));
    assert_eq!(client.send(hold("calm", "A-1-1")).await.unwrap().status, 201);
}

#[tokio::test]
async fn a_key_can_be_required() {
    let (_folder, server) = start(&["--require-idempotency-key"]);
    let mut client = Client::new(server.address());
    let described: serde_json::Value =
        client.send(Request::get("/openapi.json")).await.unwrap().json().unwrap();
    let mut refusals = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|method| *method != "get") {
            // To renew a lock twice is to renew it.
            if (path.as_str(), method.as_str()) == ("/v1/locks/{name}", "patch") {
                continue;
            }
            let method: leasehold_client::Method = method.to_uppercase().parse().unwrap();
            let path = path.replace(['{', '}'], "");
            let refused = client.send(Request::new(method.clone(), path.clone())).await.unwrap();
            let found = (refused.status, refused.code());
            assert_eq!(found, (400, Some("idempotency-missing".into())), "{method} {path}");
            refusals += 1;
        }
    }
    assert!(refusals >= 12, "{refusals}");
}

#[tokio::test]
async fn the_counters_count() {
    let (_folder, server) = start(&[]);
    let mut client = Client::new(server.address());
    create_event(&mut client, "gala", 1, 2).await;
    let granted: HoldView = client.send(hold("gala", "A-1-1")).await.unwrap().json().unwrap();
    assert_eq!(client.send(hold("gala", "A-1-1")).await.unwrap().status, 409);
    let confirm =
        Request::new(leasehold_client::Method::POST, format!("/v1/holds/{}/confirm", granted.hold_id));
    assert_eq!(client.send(confirm.secret(granted.secret.unwrap())).await.unwrap().status, 201);
    let metrics = client.send(Request::get("/metrics")).await.unwrap();
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    for line in [
        "leasehold_holds_granted_total 1",
        "leasehold_refused_total{reason=\"seat-taken\"} 1",
        "leasehold_bookings_created_total 1",
        "leasehold_holds_expired_total 0",
        "leasehold_confirm_conflicts_total 0",
        "leasehold_hold_seconds_count 1",
        "leasehold_http_responses_total{status=\"409\"} 1",
    ] {
        assert!(text.contains(line), "no `{line}` in\n{text}");
    }
    for name in
        ["leasehold_commit_commands_bucket", "leasehold_commit_seconds_bucket", "leasehold_queue_depth"]
    {
        assert!(text.contains(name), "no {name}");
    }
}

#[tokio::test]
async fn holds_that_expire_and_payments_that_come_too_late_are_counted() {
    let (_folder, server) = start(&[]);
    let mut client = Client::new(server.address());
    create_event(&mut client, "gala", 1, 2).await;
    let short =
        CreateHold { items: vec![ItemSpec::seat("A-1-1")], ttl_ms: Some(1_000), ..CreateHold::default() };
    let late = client.send(Request::post("/v1/events/gala/holds", &short)).await.unwrap();
    let late: HoldView = late.json().unwrap();
    let begun = Instant::now();
    while !metrics(&mut client).await.contains("leasehold_holds_expired_total 1\n") {
        assert!(begun.elapsed() < Duration::from_secs(10), "{}", metrics(&mut client).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(client.send(hold("gala", "A-1-1")).await.unwrap().status, 201, "somebody else has it now");
    let paid = ConfirmHold { payment_ref: Some("pay-1".to_owned()), ..ConfirmHold::default() };
    let paid = Request::post(format!("/v1/holds/{}/confirm", late.hold_id), &paid);
    let refused = client.send(paid.secret(late.secret.unwrap())).await.unwrap();
    assert_eq!((refused.status, refused.code().as_deref()), (409, Some("refund-due")));
    let text = metrics(&mut client).await;
    for line in ["leasehold_holds_expired_total 1", "leasehold_confirm_conflicts_total 1"] {
        assert!(text.contains(&format!("{line}\n")), "no `{line}` in\n{text}");
    }
}

#[tokio::test]
async fn a_payment_too_many_is_told_to_come_back_and_gets_the_place_of_one_that_ended() {
    let (_folder, server) = start(&[]);
    let mut client = Client::new(server.address());
    let policy = Some(PolicySpec { payments_in_flight_max: Some(1), ..PolicySpec::default() });
    let seats = vec![SectionSpec { name: "A".to_owned(), rows: 1, seats_per_row: 2 }];
    let layout = Some(LayoutSpec { sections: seats });
    let event = CreateEvent { id: "gala".to_owned(), layout, policy, ..CreateEvent::default() };
    let created: EventView = client.send(Request::post("/v1/events", &event)).await.unwrap().json().unwrap();
    assert_eq!(created.policy.payments_in_flight_max, 1);
    let first: HoldView = client.send(hold("gala", "A-1-1")).await.unwrap().json().unwrap();
    let second: HoldView = client.send(hold("gala", "A-1-2")).await.unwrap().json().unwrap();
    let begin = |hold: &HoldView| {
        let body = BeginPayment { payment_ref: format!("pay-{}", hold.hold_id), max_wait_ms: None };
        let request = Request::post(format!("/v1/holds/{}/payment", hold.hold_id), &body);
        request.secret(hold.secret.clone().unwrap())
    };
    assert_eq!(client.send(begin(&first)).await.unwrap().status, 200);
    let refused = client.send(begin(&second)).await.unwrap();
    assert_eq!((refused.status, refused.code().as_deref()), (429, Some("payments-busy")));
    assert_eq!(header(&refused, "retry-after"), "1");
    let text = metrics(&mut client).await;
    assert!(text.contains("reason=\"payments-busy\"} 1\n"), "{text}");
    let failed = PaymentFailed { payment_ref: format!("pay-{}", first.hold_id) };
    let failed = Request::post(format!("/v1/holds/{}/payment/failed", first.hold_id), &failed);
    assert_eq!(client.send(failed.secret(first.secret.unwrap())).await.unwrap().status, 200);
    assert_eq!(client.send(begin(&second)).await.unwrap().status, 200);
}

async fn metrics(client: &mut Client) -> String {
    let answer = client.send(Request::get("/metrics")).await.unwrap();
    String::from_utf8(answer.body.to_vec()).unwrap()
}

#[tokio::test]
async fn every_answer_has_a_request_id() {
    let (_folder, server) = start(&[]);
    let ask = |path: &str, ids: &[&str]| {
        let headers: Vec<(&str, &str)> = ids.iter().map(|id| ("x-request-id", *id)).collect();
        let answer =
            exchange(server.address(), &request_bytes("GET", path, &headers, b""), Duration::from_secs(5));
        answer.header("x-request-id").unwrap_or_default().to_owned()
    };
    for path in ["/v1/events", "/v1/events/nothing", "/healthz", "/no/such/path"] {
        assert_eq!(ask(path, &["order-4711/step:2"]), "order-4711/step:2", "a decent one is kept on {path}");
    }
    let made = [ask("/v1/events", &[]), ask("/v1/events", &[])];
    assert_ne!(made[0], made[1]);
    let (longest, too_long) = ("a".repeat(128), "a".repeat(129));
    assert_eq!(ask("/v1/events", &[&longest]), longest);
    for bad in ["", "two words", "caf\u{e9}", &too_long] {
        let id = ask("/v1/events", &[bad]);
        assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{bad:?} became {id:?}");
    }
}

#[tokio::test]
async fn every_line_of_the_log_is_an_object_and_none_tells_a_secret() {
    let (_folder, mut server) = start(&["--log", "trace"]);
    let mut client = Client::new(server.address());
    create_event(&mut client, "gala", 1, 2).await;
    let granted = hold("gala", "A-1-1").idempotency_key("a-key-of-mine").header("x-request-id", "id-of-hold");
    let granted: HoldView = client.send(granted).await.unwrap().json().unwrap();
    let secret = granted.secret.unwrap();
    let path = format!("/v1/holds/{}", granted.hold_id);
    let forged = "0".repeat(secret.len());
    for (request, id) in [
        (Request::get(&path).secret(&secret), "id-of-read"),
        (Request::delete(&path).secret(&forged).idempotency_key("a-key-of-mine"), "id-of-forged"),
        (Request::delete(&path).secret(&secret).idempotency_key("a-key-of-mine"), "id-of-release"),
    ] {
        client.send(request.header("x-request-id", id)).await.unwrap();
    }
    assert_eq!(server.sigterm_and_wait().code(), Some(0));
    let log = server.log();
    let lines = log.lines().map(|line| {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let answered: Vec<(String, u64)> = lines
        .filter(|line| line["fields"]["message"] == "answered")
        .filter_map(|line| {
            Some((line["fields"]["request_id"].as_str()?.to_owned(), line["fields"]["status"].as_u64()?))
        })
        .collect();
    for (id, status) in
        [("id-of-hold", 201), ("id-of-read", 200), ("id-of-forged", 404), ("id-of-release", 200)]
    {
        assert!(answered.contains(&(id.to_owned(), status)), "{id} is not in {answered:?}");
    }
    for hidden in [secret.as_str(), &forged, "a-key-of-mine"] {
        assert!(!log.contains(hidden), "the log tells {hidden}");
    }
}

#[tokio::test]
async fn the_api_is_described_and_the_page_needs_nothing_from_elsewhere() {
    let (_folder, server) = start(&[]);
    let mut client = Client::new(server.address());
    let document = client.send(Request::get("/openapi.json")).await.unwrap();
    let document: serde_json::Value = document.json().unwrap();
    let paths = document["paths"].as_object().unwrap();
    for path in ["/v1/events/{event}/holds", "/v1/holds/{hold}/confirm", "/v1/events/{event}/stream"] {
        assert!(paths.contains_key(path), "{path} is not described");
    }
    let page = client.send(Request::get("/docs")).await.unwrap();
    let html = String::from_utf8(page.body.to_vec()).unwrap();
    assert!(!html.contains("http://") && !html.contains("https://"), "{html}");
    assert!(header(&page, "content-security-policy").starts_with("default-src 'none'"));
    let script =
        client.send(Request::get("/docs/reference.js").header("accept-encoding", "gzip")).await.unwrap();
    assert_eq!((script.status, header(&script, "content-encoding")), (200, "gzip"));
    assert!(script.body.len() > 100_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_finishes_what_was_accepted_and_ends_streams() {
    let (folder, mut server) = start(&[]);
    let address = server.address().to_owned();
    let mut client = Client::new(&address);
    create_event(&mut client, "gala", 1, 201).await;
    let mut stream = RawConnection::open(&address).unwrap();
    stream.write(&request_bytes("GET", "/v1/events/gala/stream", &[], b"")).unwrap();
    stream.read_until(|bytes| bytes.windows(5).any(|part| part == b"hello"), Duration::from_secs(5));
    // Half a request: the server has its head and waits for the rest of its body.
    let body = br#"{"items":[{"seat":"A-1-201"}]}"#;
    let whole = request_bytes("POST", "/v1/events/gala/holds", &[("expect", "100-continue")], body);
    let (first_half, second_half) = whole.split_at(whole.len() - body.len() / 2);
    let mut half_sent = RawConnection::open(&address).unwrap();
    half_sent.write(first_half).unwrap();
    assert_eq!(half_sent.read_answer(Duration::from_secs(5)).unwrap().status, 100);
    let buyers: Vec<_> = (1..=200)
        .map(|seat| {
            let mut client = Client::new(&address);
            tokio::spawn(async move { client.send(hold("gala", &format!("A-1-{seat}"))).await })
        })
        .collect();
    // The signal comes when some have their answer and others wait for theirs.
    for _ in 0..1_000 {
        let event = client.send(Request::get("/v1/events/gala")).await.unwrap();
        let event: EventView = event.json().unwrap();
        if event.seats.held > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let begun = Instant::now();
    let stopping = tokio::task::spawn_blocking(move || server.sigterm_and_wait());
    while RawConnection::open(&address).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(5), "a server that stops takes no new connections");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    half_sent.write(second_half).unwrap();
    assert_eq!(half_sent.read_answer(Duration::from_secs(5)).unwrap().status, 201);
    assert_eq!(stopping.await.unwrap().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(8), "a stream does not hold the server up");
    let mut granted = vec![201];
    for (seat, buyer) in (1..).zip(buyers) {
        // Whoever has no answer was not accepted any more.
        if let Ok(answer) = buyer.await.unwrap() {
            assert!(matches!(answer.status, 201 | 503), "{answer:?}");
            granted.extend((answer.status == 201).then_some(seat));
        }
    }
    assert!(granted.len() > 1, "some were accepted before the signal");
    granted.sort_unstable();

    let server = start_on(&folder.path().join("serving.db"), &[]);
    let found =
        Client::new(server.address()).send(Request::get("/v1/events/gala/availability")).await.unwrap();
    let letters = found.json::<Availability>().unwrap().seats.unwrap();
    let held: Vec<usize> =
        (1..).zip(letters.chars()).filter(|(_, letter)| *letter == 'h').map(|(seat, _)| seat).collect();
    assert_eq!(held, granted, "what was granted is in the file, and nothing else was done");
}

#[tokio::test]
async fn a_connection_too_many_is_told_so_and_a_free_place_is_used_again() {
    let (_folder, server) = start(&["--connections-max", "5"]);
    let mut idle: Vec<_> = (0..5).map(|_| RawConnection::open(server.address()).unwrap()).collect();
    let request = request_bytes("GET", "/healthz", &[], b"");
    let mut refused = None;
    for _ in 0..50 {
        let mut one_more = RawConnection::open(server.address()).unwrap();
        if let Some(answer) = one_more.read_answer(Duration::from_millis(200)) {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("a connection too many gets an answer");
    assert_eq!((refused.status, refused.code().as_deref()), (503, Some("overloaded")));
    assert_eq!(refused.header("retry-after"), Some("1"));
    idle.clear();
    let mut served = false;
    for _ in 0..50 {
        let mut next = RawConnection::open(server.address()).unwrap();
        next.write(&request).unwrap();
        served |= next.read_answer(Duration::from_millis(500)).is_some_and(|answer| answer.status == 200);
        if served {
            break;
        }
    }
    assert!(served, "places that are free again are given");
}
