//! What is for operators only: who gets it, and what the log and the list of problems say over HTTP.

use std::path::Path;
use std::time::Duration;

use leasehold_api::{
    BlockList, BlockView, CreateEvent, CreateHold, HoldView, ItemSpec, LogView, SeatSpec, TroubleList,
    VenueView,
};
use leasehold_client::{Client, Request};
use leasehold_testkit::{Launch, ServerProcess, exchange};
use serde_json::json;

const OPERATORS_ONLY: [&str; 4] =
    ["/console", "/v1/operator/problems", "/v1/operator/replicas", "/v1/operator/events/gala/log"];

async fn start(args: &[&str]) -> (tempfile::TempDir, ServerProcess) {
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::new(Path::new(env!("CARGO_BIN_EXE_leasehold")), &folder.path().join("operators.db"));
    let server = launch.args(args).start();
    let event = CreateEvent {
        id: "gala".to_owned(),
        seats: (1..=4).map(|number| SeatSpec::Id(format!("A-{number}"))).collect(),
        ..CreateEvent::default()
    };
    let created = Client::new(server.address()).send(Request::post("/v1/events", &event)).await.unwrap();
    assert_eq!(created.status, 201);
    (folder, server)
}

async fn hold(client: &mut Client, seat: &str, holder: &str) -> HoldView {
    let body =
        CreateHold { items: vec![ItemSpec::seat(seat)], holder: Some(holder.to_owned()), ttl_ms: None };
    let answer = client.send(Request::post("/v1/events/gala/holds", &body)).await.unwrap();
    assert_eq!(answer.status, 201);
    answer.json().unwrap()
}

/// The status of what is asked for by that name.
fn ask(server: &ServerProcess, request: &str, host: &str) -> u16 {
    let request = format!("{request}\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    exchange(server.address(), request.as_bytes(), Duration::from_secs(10)).status
}

#[tokio::test]
async fn strangers_proxies_and_other_peoples_pages_get_nothing_of_the_operators() {
    let (_folder, server) = start(&[]).await;
    let mut client = Client::new(server.address());
    for path in OPERATORS_ONLY {
        assert_eq!(client.send(Request::get(path)).await.unwrap().status, 200, "{path}");
        for (name, value) in [
            ("x-forwarded-for", "203.0.113.9"),
            ("forwarded", "for=203.0.113.9"),
            ("via", "1.1 proxy"),
            ("sec-fetch-site", "cross-site"),
        ] {
            let answer = client.send(Request::get(path).header(name, value)).await.unwrap();
            assert_eq!((answer.status, answer.code().as_deref()), (404, Some("not-found")), "{path} {name}");
        }
        assert_eq!(
            ask(&server, &format!("GET {path} HTTP/1.0"), "localhost"),
            404,
            "nginx as it comes: {path}"
        );
        assert_eq!(ask(&server, &format!("GET {path} HTTP/1.1"), "tickets.example"), 404, "{path}");
    }
    let name = server.address().to_string();
    for request in ["GET /v1/events HTTP/1.1", "GET /v1/events/gala/holds HTTP/1.1", "GET /metrics HTTP/1.1"]
    {
        assert_eq!(ask(&server, request, &name), 200, "{request}");
        assert_eq!(ask(&server, request, "made-to-lead-here.example"), 404, "{request}");
        // Any page can add that.
        let forwarded = "made-to-lead-here.example\r\nx-forwarded-for: 203.0.113.9";
        assert_eq!(ask(&server, request, forwarded), 404, "{request}");
    }
    let page =
        client.send(Request::get("/events/gala").header("x-forwarded-for", "203.0.113.9")).await.unwrap();
    assert_eq!(page.status, 200, "buyers come through proxies");
}

#[tokio::test]
async fn told_in_so_many_words_the_console_is_open() {
    let (_folder, server) = start(&["--insecure-console-without-keys"]).await;
    let mut client = Client::new(server.address());
    for path in OPERATORS_ONLY {
        let answer = client.send(Request::get(path).header("x-forwarded-for", "203.0.113.9")).await.unwrap();
        assert_eq!(answer.status, 200, "{path}");
    }
}

#[tokio::test]
async fn the_log_says_who_had_a_seat_and_shows_no_secret() {
    let (_folder, server) = start(&[]).await;
    let mut client = Client::new(server.address());
    let lost = hold(&mut client, "A-2", "ada").await;
    let revoke = Request::post(format!("/v1/holds/{}/revoke", lost.hold_id), &json!({"reason": "camera"}));
    assert_eq!(client.send(revoke).await.unwrap().status, 200);
    let won = hold(&mut client, "A-2", "grace").await;

    let answer = client.send(Request::get("/v1/operator/events/gala/log?seat=A-2")).await.unwrap();
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    for secret in [lost.secret.as_deref(), won.secret.as_deref()] {
        assert!(!text.contains(secret.unwrap()), "a secret is in the log");
    }
    assert_eq!(answer.headers["cache-control"], "no-store");
    let log: LogView = answer.json().unwrap();
    let kinds: Vec<&str> = log.entries.iter().map(|entry| entry.kind.as_str()).collect();
    assert_eq!(kinds, ["hold.created", "hold.revoked", "hold.created"]);
    assert_eq!(log.entries[1].reason.as_deref(), Some("camera"));
    assert_eq!(log.entries[1].hold_id.as_deref(), Some(lost.hold_id.as_str()));
    assert_eq!(log.entries[0].seats, [("A-2".to_owned(), "h".to_owned())]);
    assert_eq!(log.owner.unwrap().hold_id, Some(won.hold_id));
    assert_eq!(log.next, None);

    let first = client.send(Request::get("/v1/operator/events/gala/log?limit=1")).await.unwrap();
    let first: LogView = first.json().unwrap();
    let next = first.next.expect("there is more");
    let path = format!("/v1/operator/events/gala/log?limit=1&before={next}");
    let second: LogView = client.send(Request::get(path)).await.unwrap().json().unwrap();
    assert_eq!(second.entries[0].kind, "hold.revoked");
}

#[tokio::test]
async fn what_is_kept_back_is_listed_a_page_at_a_time() {
    let (_folder, server) = start(&[]).await;
    let mut client = Client::new(server.address());
    let event = json!({"id": "small", "seats": ["A-1", "A-2"], "pools": [{"id": "floor", "capacity": 9}]});
    assert_eq!(client.send(Request::post("/v1/events", &event)).await.unwrap().status, 201);
    let camera = json!({"seats": ["A-1"], "pools": [{"id": "floor", "quantity": 4}], "reason": "camera"});
    let mut made = Vec::new();
    for block in [camera, json!({"seats": ["A-2"]})] {
        let answer = client.send(Request::post("/v1/events/small/blocks", &block)).await.unwrap();
        made.push(answer.json::<BlockView>().unwrap());
    }
    let first = client.send(Request::get("/v1/events/small/blocks?limit=1")).await.unwrap();
    let first: BlockList = first.json().unwrap();
    let path = format!("/v1/events/small/blocks?limit=1&after={}", first.next.expect("there is more"));
    let second: BlockList = client.send(Request::get(path)).await.unwrap().json().unwrap();
    assert_eq!(second.next, None);
    assert_eq!([first.blocks, second.blocks].concat(), made);
}

#[tokio::test]
async fn entry_with_very_many_seats_shows_the_one_that_is_asked_about() {
    let (_folder, server) = start(&[]).await;
    let mut client = Client::new(server.address());
    let all: Vec<String> = (1..=1_500).map(|number| format!("A-{number}")).collect();
    let event = json!({"id": "large", "seats": all});
    assert_eq!(client.send(Request::post("/v1/events", &event)).await.unwrap().status, 201);
    let block = json!({"seats": all, "reason": "rehearsal"});
    assert_eq!(client.send(Request::post("/v1/events/large/blocks", &block)).await.unwrap().status, 201);

    let log = client.send(Request::get("/v1/operator/events/large/log?seat=A-1400&limit=1")).await.unwrap();
    let log: LogView = log.json().unwrap();
    assert_eq!((log.entries[0].seats.len(), log.entries[0].seats_left_out), (1_000, 500));
    assert_eq!(log.entries[0].seats[0], ("A-1400".to_owned(), "b".to_owned()));
}

#[tokio::test]
async fn what_went_wrong_is_listed_with_its_request_id() {
    let (_folder, mut server) = start(&["--locks", "redis://127.0.0.1:1"]).await;
    let mut client = Client::new(server.address()).with_timeout(Duration::from_secs(60));
    let request = Request::post("/v1/locks/job", &json!({"wait_ms": 0})).header("x-request-id", "the-one");
    let failed = client.send(request).await.unwrap();
    assert_eq!(failed.status, 503, "{failed:?}");
    let problems = client.send(Request::get("/v1/operator/problems")).await.unwrap();
    let problems: TroubleList = problems.json().unwrap();
    let seen = problems.problems.iter().find(|one| one.request_id == "the-one").expect("it is listed");
    assert_eq!((seen.status, seen.path.as_str()), (503, "/v1/locks/job"));
    assert_eq!(seen.code, failed.code());
    server.kill9();
}

#[tokio::test]
async fn a_venue_is_sent_once_and_known_again_by_its_tag() {
    let (_folder, server) = start(&[]).await;
    let mut client = Client::new(server.address());
    let answer = client.send(Request::get("/v1/events/gala/venue")).await.unwrap();
    let venue: VenueView = answer.json().unwrap();
    assert_eq!(venue.seat_ids, ["A-1", "A-2", "A-3", "A-4"]);
    assert_eq!(venue.sections[0].rows[0].count, 4);
    hold(&mut client, "A-1", "ada").await;
    let tag = answer.headers["etag"].to_str().unwrap();
    let again = Request::get("/v1/events/gala/venue").header("if-none-match", tag);
    assert_eq!(client.send(again).await.unwrap().status, 304, "holds do not change a venue");
}

#[tokio::test]
async fn the_time_of_answers_is_counted() {
    let (_folder, server) = start(&[]).await;
    let mut client = Client::new(server.address());
    let count = |text: &str| {
        let line =
            text.lines().find(|line| line.starts_with("leasehold_http_request_seconds_count")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let mut read = async || {
        let answer = client.send(Request::get("/metrics")).await.unwrap();
        String::from_utf8_lossy(&answer.body).into_owned()
    };
    let (before, after) = (read().await, read().await);
    assert!(count(&after) > count(&before));
    assert!(after.contains("leasehold_http_request_seconds_bucket{le=\"+Inf\"}"), "{after}");
}
