//! What servers on a ledger tell and share: how old reads are while it is gone, who they are, their rate limits,
//! and that what one gave up does not take a lock from another.

use std::path::Path;
use std::time::{Duration, Instant};

use leasehold_testkit::servers::{Persistence, Postgres, RedisServer};
use leasehold_testkit::{Launch, RawAnswer, RawConnection, exchange, request_bytes};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(15);
const AVAILABILITY: &str = "/v1/events/gala/availability";

/// A server on this ledger. Its key is for tests only.
fn launch(ledger: &Postgres) -> Launch {
    Launch::without_file(Path::new(env!("CARGO_BIN_EXE_leasehold")))
        .args(&["--ledger", &ledger.url()])
        .variable("LEASEHOLD_SECRET_KEY", &"5eed".repeat(16))
}

fn ask(address: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> RawAnswer {
    exchange(address, &request_bytes(method, path, headers, body.as_bytes()), SOON)
}

fn read(address: &str, path: &str) -> RawAnswer {
    ask(address, "GET", path, &[], "")
}

fn body(answer: &RawAnswer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// Asks until the answer is so.
fn until(address: &str, path: &str, is_so: impl Fn(&RawAnswer) -> bool) -> RawAnswer {
    let deadline = Instant::now() + SOON;
    loop {
        let answer = read(address, path);
        if is_so(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{answer:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn listen(address: &str) -> RawConnection {
    let mut stream = RawConnection::open(address).unwrap();
    stream.write(&request_bytes("GET", "/v1/events/gala/stream", &[], b"")).unwrap();
    stream
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn reads_say_how_old_they_are_while_the_ledger_is_gone_and_no_longer() {
    let mut ledger = Postgres::start();
    let server = launch(&ledger).start();
    let address = server.address();
    let json = [("content-type", "application/json")];
    let event = r#"{"id":"gala","seats":["A-1","A-2"]}"#;
    assert_eq!(ask(address, "POST", "/v1/events", &json, event).status, 201);
    let hold = r#"{"items":[{"seat":"A-1"}]}"#;
    assert_eq!(ask(address, "POST", "/v1/events/gala/holds", &json, hold).status, 201);
    let fresh = read(address, AVAILABILITY);
    let (tag, version) = (fresh.header("etag").unwrap().to_owned(), body(&fresh)["version"].clone());
    let known = [("if-none-match", tag.as_str())];
    assert!(fresh.header("age").is_none() && body(&fresh).get("stale_ms").is_none(), "{fresh:?}");
    assert_eq!(ask(address, "GET", AVAILABILITY, &known, "").status, 304);
    let mut stream = listen(address);
    let greeting = stream.read_until(|bytes| has(bytes, "\n\n"), SOON);
    assert!(has(&greeting, "event: hello") && !has(&greeting, "stale_ms"));

    ledger.kill9();
    let old = until(address, AVAILABILITY, |answer| answer.header("age").is_some());
    let since = format!("{AVAILABILITY}?since={}", version.as_str().unwrap());
    for (path, headers) in
        [(AVAILABILITY, &[][..]), (AVAILABILITY, &known), (&since, &[]), ("/v1/events/gala", &[])]
    {
        let answer = ask(address, "GET", path, headers, "");
        assert_eq!((answer.status, answer.header("etag")), (200, None), "{path}: {answer:?}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        let (age, stale_ms) = (answer.header("age").unwrap(), body(&answer)["stale_ms"].as_u64().unwrap());
        assert!(stale_ms >= 1_000, "{path}: {answer:?}");
        assert_eq!(age, (stale_ms / 1_000).to_string(), "{path}");
        assert_eq!(body(&answer)["version"], version, "{path}");
    }
    assert_eq!(body(&old)["seats"], "hf", "{old:?}");
    let later = until(address, AVAILABILITY, |answer| body(answer)["stale_ms"].as_u64() > Some(3_000));
    assert!(body(&later)["stale_ms"].as_u64() > body(&old)["stale_ms"].as_u64(), "it grows");
    let refused = ask(address, "POST", "/v1/events/gala/holds", &json, r#"{"items":[{"seat":"A-2"}]}"#);
    assert_eq!((refused.status, refused.header("retry-after").is_some()), (503, true), "{refused:?}");
    let told = stream.read_until(|bytes| has(bytes, "event: ping\ndata: {\"stale_ms\":"), SOON);
    assert!(has(&told, "stale_ms"), "the stream says so too");
    let greeting = listen(address).read_until(|bytes| has(bytes, "\n\n"), SOON);
    assert!(has(&greeting, "\"stale_ms\":"), "and to those who come now");

    ledger.restart();
    let again = until(address, AVAILABILITY, |answer| answer.header("age").is_none());
    assert_eq!((body(&again).get("stale_ms"), again.header("etag")), (None, Some(tag.as_str())));
    assert_eq!(ask(address, "GET", AVAILABILITY, &known, "").status, 304);
    let told = stream.read_until(|bytes| has(bytes, "event: ping\ndata: {}"), SOON);
    assert!(has(&told, "event: ping\ndata: {}"), "that it is over");
}

#[test]
fn servers_know_of_each_other_until_they_are_killed() {
    const REPLICAS: &str = "/v1/operator/replicas";
    let ledger = Postgres::start();
    let (first, mut second) = (launch(&ledger).start(), launch(&ledger).start());
    let both = until(first.address(), REPLICAS, |answer| {
        answer.status == 200 && body(answer)["replicas"].as_array().is_some_and(|all| all.len() == 2)
    });
    for replica in body(&both)["replicas"].as_array().unwrap() {
        assert_eq!(replica["version"], env!("CARGO_PKG_VERSION"));
        let is_first = replica["listens_on"] == first.address();
        assert!(is_first || replica["listens_on"] == second.address(), "{replica}");
        assert_eq!(replica["is_this"], is_first, "{replica}");
        assert!(replica["quiet_ms"].as_u64().is_some_and(|quiet| quiet < 5_000), "{replica}");
    }
    second.kill9();
    let one = until(first.address(), REPLICAS, |answer| {
        answer.status == 200 && body(answer)["replicas"].as_array().is_some_and(|all| all.len() == 1)
    });
    assert_eq!(body(&one)["replicas"][0]["is_this"], true);
}

/// What a server cannot tell in time it does not tell later. A machine that stands still for a moment may be the reason,
/// but not every time.
#[test]
fn servers_with_a_gate_let_an_address_have_its_rate_once() {
    assert!((0..3).any(|_| an_address_has_its_rate_once()), "the second gives what the first gave");
}

fn an_address_has_its_rate_once() -> bool {
    const BURST: usize = 40;
    let redis = RedisServer::options().persistence(Persistence::None).start();
    let ledger = Postgres::start();
    let gated = launch(&ledger).args(&["--gate", &redis.url(), "--address-rate", &format!("1:{BURST}")]);
    let (first, second) = (gated.start(), gated.start());
    let given = |address: &str| read(address, "/v1/events").status == 200;
    assert!((0..BURST).all(|_| given(first.address())), "the whole burst from the first");
    // A few are given before the second is told; then the rest is missing there too.
    let begun = Instant::now();
    let mut more = 0;
    while given(second.address()) {
        more += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
    let refilled = begun.elapsed().as_secs() as usize + 2;
    println!("{more} more from the second, where {refilled} came back");
    let refused = read(second.address(), "/v1/events");
    assert_eq!((refused.status, refused.header("retry-after").is_some()), (429, true), "{refused:?}");
    more < BURST / 2 + refilled
}

/// The first server goes on releasing what it gave up, and the same key was used for both.
#[test]
fn a_request_that_one_server_gave_up_and_another_granted_keeps_its_lock() {
    let (ledger, redis) = (Postgres::start(), RedisServer::start());
    let start = || launch(&ledger).args(&["--locks", &redis.url()]).start();
    let (one, other) = (start(), start());
    let (lock, json) = ("/v1/locks/gate", ("content-type", "application/json"));
    let key = [json, ("idempotency-key", "k1"), ("host", "localhost")];
    let holder = ask(other.address(), "POST", lock, &[json], r#"{"ttl_ms":600000}"#);
    let holder = body(&holder)["owner"].as_str().unwrap().to_owned();
    // Whoever stood in line is released once more a second after it left.
    let wanted = r#"{"ttl_ms":600000,"wait_ms":60000,"order":"fifo"}"#;
    let waiting = |address: &str, count: u64| until(address, lock, |answer| body(answer)["waiters"] == count);
    let mut gone = RawConnection::open(one.address()).unwrap();
    gone.write(&request_bytes("POST", lock, &key, wanted.as_bytes())).unwrap();
    waiting(one.address(), 1);
    drop(gone);
    waiting(one.address(), 0);
    let released = ask(other.address(), "DELETE", lock, &[("lock-owner", &holder)], "");
    assert_eq!(released.status, 200, "{released:?}");
    let granted = ask(other.address(), "POST", lock, &key, wanted);
    assert_eq!(granted.status, 201, "{granted:?}");
    std::thread::sleep(Duration::from_millis(1_500));
    let third = ask(one.address(), "POST", lock, &[json], r#"{"wait_ms":0}"#);
    assert_eq!(third.status, 409, "somebody else got in: {third:?}");
}
