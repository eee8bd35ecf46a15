//! The lock API against the real server process: on its own file, on a real Redis, and over crashes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_api::{AcquireLock, LockGrant, LockList, LockView};
use leasehold_client::{CallError, Client, Request, Response};
use leasehold_testkit::servers::{Authority, Postgres, RedisServer};
use leasehold_testkit::{RawConnection, Stage, request_bytes};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const STORM: usize = 64;

fn open(args: &[&str]) -> Stage {
    Stage::open_with(Path::new(env!("CARGO_BIN_EXE_leasehold")), |launch| launch.args(args))
}

/// On this server, or on a file of its own.
fn open_on(redis: Option<&RedisServer>) -> Stage {
    let url = redis.map(RedisServer::url);
    open(&url.as_ref().map_or(vec![], |url| vec!["--locks", url.as_str()]))
}

fn wanted(ttl_ms: u64, wait_ms: u64) -> AcquireLock {
    AcquireLock { ttl_ms: Some(ttl_ms), wait_ms: Some(wait_ms), ..AcquireLock::default() }
}

async fn granted(client: &mut Client, name: &str, ttl_ms: u64) -> LockGrant {
    client.acquire_lock(name, &wanted(ttl_ms, 0), None).await.unwrap()
}

fn code(result: Result<impl std::fmt::Debug, CallError>) -> String {
    match result {
        Err(CallError::Refused(problem)) => problem.code.into_owned(),
        other => panic!("not refused: {other:?}"),
    }
}

/// Looks until it is so; panics when it is not so within ten seconds.
async fn until(client: &mut Client, name: &str, so: impl Fn(&LockView) -> bool) -> LockView {
    let mut last = None;
    for _ in 0..2_000 {
        let view = client.lock(name).await.unwrap();
        if so(&view) {
            return view;
        }
        last = Some(view);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it does not come to be: {last:?}");
}

fn retry_after(response: &Response) -> u64 {
    let value = response.headers.get("retry-after").expect("a Retry-After");
    value.to_str().unwrap().parse().expect("seconds")
}

/// Acquires, is busy, renews, releases: the same on every store.
async fn basic_flow(client: &mut Client, guarantee: &str) {
    let label = Some("host-7/job".to_owned());
    let body = AcquireLock { label, ..wanted(60_000, 0) };
    let name = "flow: a/b \u{e9}%";
    let grant = client.acquire_lock(name, &body, None).await.unwrap();
    assert_eq!((grant.name.as_str(), grant.guarantee.as_str()), (name, guarantee));
    assert!((50_000..=60_000).contains(&grant.expires_in_ms), "{grant:?}");
    assert_eq!(grant.fence.is_some(), guarantee == "fenced");

    let busy = client.send(Request::acquire_lock(name, &wanted(1_000, 0))).await.unwrap();
    assert_eq!((busy.status, busy.code().as_deref()), (409, Some("lock-held")));
    let problem: leasehold_api::Problem = busy.json().unwrap();
    assert!(
        problem.remaining_ms.is_some_and(|remaining| (50_000..=60_000).contains(&remaining)),
        "{problem:?}"
    );
    assert!((50..=60).contains(&retry_after(&busy)));

    let view = client.lock(name).await.unwrap();
    assert!(view.held && view.waiters == 0, "{view:?}");
    assert_eq!((view.label.as_deref(), view.fence), (Some("host-7/job"), grant.fence));
    assert!(view.age_ms.is_some_and(|age| age < 30_000), "{view:?}");
    assert!(view.remaining_ms.is_some_and(|remaining| remaining <= 60_000), "{view:?}");

    let renewal = client.renew_lock(name, &grant.owner, Duration::from_secs(90)).await.unwrap();
    assert!((80_000..=90_000).contains(&renewal.expires_in_ms), "{renewal:?}");
    assert!(client.release_lock(name, &grant.owner).await.unwrap().released);
    assert_eq!(code(client.release_lock(name, &grant.owner).await), "lock-lost");
    let free = client.lock(name).await.unwrap();
    assert!(!free.held && free.label.is_none() && free.fence.is_none(), "{free:?}");

    let next = granted(client, name, 60_000).await;
    assert_ne!(next.owner, grant.owner);
    assert!(next.fence >= grant.fence);
    client.release_lock(name, &next.owner).await.unwrap();
}

#[tokio::test]
async fn a_lock_is_acquired_renewed_and_released_in_the_servers_own_file() {
    let stage = open(&[]);
    basic_flow(&mut Client::new(stage.address()), "fenced").await;
}

#[tokio::test]
async fn a_lock_is_acquired_renewed_and_released_in_memory() {
    let stage = open(&["--locks", "memory:"]);
    basic_flow(&mut Client::new(stage.address()), "fenced").await;
}

#[tokio::test]
async fn a_lock_is_acquired_renewed_and_released_on_redis() {
    let redis = RedisServer::start();
    let stage = open(&["--locks", &redis.url(), "--lock-prefix", "app:"]);
    let mut client = Client::new(stage.address());
    basic_flow(&mut client, "lease").await;
    let grant = granted(&mut client, "nightly", 60_000).await;
    assert_eq!(redis.command::<String>(&["GET", "app:nightly"]), grant.owner, "others see the same lock");
}

#[tokio::test]
async fn with_epochs_from_postgres_redis_gives_fences() {
    let (redis, postgres) = (RedisServer::start(), Postgres::start());
    let stage = open(&["--locks", &redis.url(), "--lock-epochs", &postgres.url()]);
    basic_flow(&mut Client::new(stage.address()), "fenced").await;
}

#[tokio::test]
async fn a_lock_is_acquired_renewed_and_released_by_tls() {
    let authority = Authority::new();
    let redis = RedisServer::options().tls(&authority.certificate()).start();
    let postgres = Postgres::options().tls(&authority.certificate()).start();
    let ca_file = authority.ca_file().display().to_string();
    let locks = format!("rediss://{}?ca_file={ca_file}", redis.tls_address());
    let epochs = format!("{}?sslmode=require&sslrootcert={ca_file}", postgres.url());
    let stage = open(&["--locks", &locks, "--lock-epochs", &epochs]);
    basic_flow(&mut Client::new(stage.address()), "fenced").await;
}

#[tokio::test]
async fn without_redis_the_answer_is_503_until_it_is_back_and_reservations_go_on() {
    let mut redis = RedisServer::start();
    let stage = open(&["--locks", &redis.url()]);
    let mut client = Client::new(stage.address());
    let grant = granted(&mut client, "nightly", 600_000).await;
    let leaving = granted(&mut client, "leaving", 600_000).await;
    redis.stop();
    for request in [
        Request::acquire_lock("other", &wanted(1_000, 0)),
        Request::renew_lock("nightly", &grant.owner, Duration::from_secs(60)),
        Request::release_lock("leaving", &leaving.owner),
        Request::get("/v1/locks/nightly"),
        Request::get("/v1/locks"),
    ] {
        let shown = format!("{} {}", request.method, request.path);
        let answer = client.send(request).await.unwrap();
        assert_eq!((answer.status, answer.code().as_deref()), (503, Some("outcome-unknown")), "{shown}");
        assert!(retry_after(&answer) >= 1, "{shown}");
    }
    assert_eq!(client.send(Request::get("/readyz")).await.unwrap().status, 200, "reservations go on");
    assert_eq!(client.send(Request::get("/v1/events")).await.unwrap().status, 200);
    redis.restart();
    let view = 'back: {
        for _ in 0..1_000 {
            if let Ok(view) = client.lock("nightly").await {
                break 'back view;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the server does not find its Redis again");
    };
    assert!(view.held, "Redis kept the lease");
    assert!(client.renew_lock("nightly", &grant.owner, Duration::from_secs(60)).await.is_ok());
    until(&mut client, "leaving", |view| !view.held).await;
    granted(&mut client, "other", 1_000).await;

    assert_eq!(redis.command::<u32>(&["DEL", "lock:nightly"]), 1);
    assert_eq!(code(client.renew_lock("nightly", &grant.owner, Duration::from_secs(60)).await), "lock-lost");
    let metrics = client.send(Request::get("/metrics")).await.unwrap();
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    for line in ["leasehold_lock_renewal_failures_total 1", r#"leasehold_lock_lost_total{reason="gone"} 1"#] {
        assert!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");
    }
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_release() {
    for redis in [None, Some(RedisServer::start())] {
        waiter_is_woken(&open_on(redis.as_ref())).await;
    }
}

async fn waiter_is_woken(stage: &Stage) {
    let mut client = Client::new(stage.address());
    let mut took = Vec::new();
    for name in (0..7).map(|number| format!("gate-{number}")) {
        let first = granted(&mut client, &name, 600_000).await;
        let waiting = tokio::spawn({
            let (mut other, name) = (Client::new(stage.address()), name.clone());
            async move {
                let grant = other.acquire_lock(&name, &wanted(60_000, 30_000), None).await.unwrap();
                (grant, std::time::Instant::now())
            }
        });
        until(&mut client, &name, |view| view.waiters == 1).await;
        let released = std::time::Instant::now();
        client.release_lock(&name, &first.owner).await.unwrap();
        let (second, woken) = waiting.await.unwrap();
        took.push(woken.duration_since(released));
        assert!(second.fence > first.fence || second.guarantee == "lease", "{second:?}");
        assert!(second.expires_in_ms > 50_000, "the lease begins with the grant: {second:?}");
    }
    took.sort_unstable();
    // Whoever is not woken looks for itself after half a second or more.
    assert!(took[took.len() / 2] < Duration::from_millis(400), "woken {took:?} after the release");
}

#[tokio::test]
async fn those_who_wait_in_order_get_the_lock_in_order() {
    for redis in [None, Some(RedisServer::start())] {
        let stage = open_on(redis.as_ref());
        // On a machine that is busy with other tests one may miss its turn, but not every time.
        let mut turns = Vec::new();
        for attempt in 0..3 {
            turns = turns_in_line(&stage, &format!("line-{attempt}")).await;
            if turns == [1, 2, 3] {
                break;
            }
        }
        assert_eq!(turns, [1, 2, 3], "on {:?}", redis.map(|redis| redis.url()));
    }
}

/// Has three wait in order, lets each of them have the lock, and says in which order they got it.
async fn turns_in_line(stage: &Stage, name: &str) -> Vec<u32> {
    let mut client = Client::new(stage.address());
    let mut holder = granted(&mut client, name, 600_000).await.owner;
    let mut waiting = JoinSet::new();
    for number in 1..=3 {
        let (mut other, name) = (Client::new(stage.address()), name.to_owned());
        let label = Some(format!("number-{number}"));
        let body = AcquireLock { order: Some("fifo".to_owned()), label, ..wanted(60_000, 30_000) };
        waiting.spawn({
            let name = name.clone();
            async move { (number, other.acquire_lock(&name, &body, None).await.unwrap()) }
        });
        until(&mut client, &name, |view| view.waiters == number).await;
    }
    let mut turns = Vec::new();
    for _ in 1..=3 {
        client.release_lock(name, &holder).await.unwrap();
        let (number, grant) = waiting.join_next().await.expect("one waits").unwrap();
        assert_eq!(client.lock(name).await.unwrap().label, Some(format!("number-{number}")));
        holder = grant.owner;
        turns.push(number);
    }
    turns
}

#[tokio::test]
async fn waiting_in_vain_ends_in_time() {
    let stage = open(&[]);
    let mut client = Client::new(stage.address());
    let _holder = granted(&mut client, "gate", 600_000).await;
    let began = std::time::Instant::now();
    let busy = client.send(Request::acquire_lock("gate", &wanted(1_000, 300))).await.unwrap();
    let took = began.elapsed();
    assert_eq!((busy.status, busy.code().as_deref()), (409, Some("lock-held")));
    let remaining =
        busy.json::<leasehold_api::Problem>().unwrap().remaining_ms.expect("the time that is left");
    assert!((500_000..=599_700).contains(&remaining), "as it is after the wait: {remaining} ms");
    assert_eq!(retry_after(&busy), 60, "the longest that is asked for");
    assert!((Duration::from_millis(300)..Duration::from_secs(3)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_waiter_that_goes_away_leaves_nothing_behind() {
    for redis in [None, Some(RedisServer::start())] {
        waiter_goes_away(redis.as_ref()).await;
    }
}

async fn waiter_goes_away(redis: Option<&RedisServer>) {
    // One that waits in line has left its place in the store, so more is given back for it.
    for (key, order) in [(None, "any"), (Some("gone"), "any"), (Some("gone"), "fifo")] {
        let stage = open_on(redis);
        if let Some(redis) = redis {
            let () = redis.command(&["FLUSHALL"]);
        }
        let mut client = Client::new(stage.address());
        let first = granted(&mut client, "gate", 600_000).await;
        let mut headers = vec![("host", "localhost")];
        headers.extend(key.map(|key| ("idempotency-key", key)));
        let body = AcquireLock { order: Some(order.to_owned()), ..wanted(600_000, 60_000) };
        let json = serde_json::to_vec(&body).unwrap();
        let request = request_bytes("POST", "/v1/locks/gate", &headers, &json);
        let mut gone = RawConnection::open(stage.address()).unwrap();
        gone.write(&request).unwrap();
        until(&mut client, "gate", |view| view.waiters == 1).await;
        drop(gone);
        until(&mut client, "gate", |view| view.waiters == 0).await;
        client.release_lock("gate", &first.owner).await.unwrap();
        assert!(!client.lock("gate").await.unwrap().held);
        // What is given back in the background for the one that went away must not hit a later try.
        let again = client.acquire_lock("gate", &body, key).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert!(client.renew_lock("gate", &again.owner, Duration::from_secs(60)).await.is_ok());
    }
}

#[tokio::test]
async fn a_wrong_owner_looks_like_a_lock_that_is_not_held() {
    let stage = open(&[]);
    let mut client = Client::new(stage.address());
    let mine = granted(&mut client, "mine", 600_000).await;
    let other = granted(&mut client, "other", 600_000).await;
    let long = "a".repeat(5_000);
    let truncated = &mine.owner[..mine.owner.len() - 1];
    for owner in [None, Some(""), Some("short"), Some(other.owner.as_str()), Some(truncated), Some(&long)] {
        let with = |request: Request| match owner {
            Some(owner) => request.lock_owner(owner),
            None => request,
        };
        for (method, body) in [("PATCH", r#"{"ttl_ms":60000}"#), ("DELETE", "")] {
            let mut answers = Vec::new();
            for name in ["mine", "nobodys"] {
                let mut request = Request::new(method.parse().unwrap(), format!("/v1/locks/{name}"));
                request.body = (!body.is_empty()).then(|| body.into());
                let answer = client.send(with(request)).await.unwrap();
                assert_eq!((answer.status, answer.code().as_deref()), (410, Some("lock-lost")), "{owner:?}");
                answers.push(answer.body);
            }
            assert_eq!(answers[0], answers[1], "the answer tells whether it is held");
        }
    }
    assert!(client.renew_lock("mine", &mine.owner, Duration::from_secs(60)).await.is_ok());
}

#[tokio::test]
async fn a_lease_that_ended_is_neither_renewed_nor_released() {
    let stage = open(&[]);
    let mut client = Client::new(stage.address());
    let late = granted(&mut client, "short", 500).await;
    until(&mut client, "short", |view| !view.held).await;
    let again = Duration::from_secs(60);
    assert_eq!(code(client.renew_lock("short", &late.owner, again).await), "lock-lost");
    let current = granted(&mut client, "short", 60_000).await;
    assert!(current.fence > late.fence);
    assert_eq!(code(client.renew_lock("short", &late.owner, again).await), "lock-lost");
    assert_eq!(code(client.release_lock("short", &late.owner).await), "lock-lost");
    assert!(client.renew_lock("short", &current.owner, again).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_one_request_makes_one_owner() {
    for redis in [None, Some(RedisServer::start())] {
        storm_makes_one_owner(&open_on(redis.as_ref())).await;
    }
}

async fn storm_makes_one_owner(stage: &Stage) {
    let start = Arc::new(Barrier::new(STORM));
    let mut senders = JoinSet::new();
    for _ in 0..STORM {
        let (mut client, start) = (Client::new(stage.address()), Arc::clone(&start));
        senders.spawn(async move {
            client.connect().await.unwrap();
            start.wait().await;
            for _ in 0..1_000 {
                let request = Request::acquire_lock("storm", &wanted(600_000, 0)).idempotency_key("storm-1");
                let answer = client.send(request).await.unwrap();
                if answer.code().as_deref() != Some("idempotency-in-flight") {
                    return answer;
                }
                assert!(retry_after(&answer) >= 1);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            panic!("in flight for ever");
        });
    }
    let answers = senders.join_all().await;
    let first: LockGrant = answers[0].json().unwrap();
    for answer in &answers {
        assert_eq!(answer.status, 201, "{answer:?}");
        let grant: LockGrant = answer.json().unwrap();
        assert_eq!((&grant.owner, grant.fence), (&first.owner, first.fence));
    }
    let replayed =
        answers.iter().filter(|answer| answer.headers.contains_key("idempotency-replayed")).count();
    assert_eq!(replayed, STORM - 1);
}

#[tokio::test]
async fn a_key_whose_first_request_still_waits_is_in_flight() {
    for redis in [None, Some(RedisServer::start())] {
        key_is_in_flight(&open_on(redis.as_ref())).await;
    }
}

async fn key_is_in_flight(stage: &Stage) {
    let mut client = Client::new(stage.address());
    let holder = granted(&mut client, "gate", 600_000).await;
    let (mut other, body) = (Client::new(stage.address()), wanted(60_000, 30_000));
    let first = {
        let body = body.clone();
        tokio::spawn(async move { other.acquire_lock("gate", &body, Some("k1")).await.unwrap() })
    };
    until(&mut client, "gate", |view| view.waiters == 1).await;
    let same = client.send(Request::acquire_lock("gate", &body).idempotency_key("k1")).await.unwrap();
    assert_eq!((same.status, same.code().as_deref()), (409, Some("idempotency-in-flight")));
    assert!(retry_after(&same) >= 1);
    let another = client.acquire_lock("gate", &wanted(60_000, 0), Some("k1")).await;
    assert_eq!(code(another), "idempotency-mismatch");
    client.release_lock("gate", &holder.owner).await.unwrap();
    let grant = first.await.unwrap();
    let replayed = client.acquire_lock("gate", &body, Some("k1")).await.unwrap();
    assert_eq!((&replayed.owner, replayed.fence), (&grant.owner, grant.fence));
    assert!((1..=grant.expires_in_ms).contains(&replayed.expires_in_ms), "what is left: {replayed:?}");
}

#[tokio::test]
async fn a_key_has_one_effect_one_answer_and_one_body() {
    for redis in [None, Some(RedisServer::start())] {
        key_has_one_effect(&open_on(redis.as_ref())).await;
    }
}

async fn key_has_one_effect(stage: &Stage) {
    let mut client = Client::new(stage.address());
    let body = wanted(600_000, 0);
    let holder = granted(&mut client, "job", 600_000).await;
    assert_eq!(code(client.acquire_lock("job", &body, Some("k1")).await), "lock-held");
    client.release_lock("job", &holder.owner).await.unwrap();
    let grant = client.acquire_lock("job", &body, Some("k1")).await.unwrap();
    let other = client.acquire_lock("job", &wanted(5_000, 0), Some("k1")).await;
    assert_eq!(code(other), "idempotency-mismatch");
    assert_ne!(client.acquire_lock("job-2", &body, Some("k1")).await.unwrap().owner, grant.owner);

    let release = || Request::release_lock("job", &grant.owner).idempotency_key("k2");
    let (one, two) = (client.send(release()).await.unwrap(), client.send(release()).await.unwrap());
    assert_eq!((one.status, two.status, &one.body), (200, 200, &two.body));
    assert!(two.headers.contains_key("idempotency-replayed"));
    // A late duplicate gets its answer, without time in it, and does not acquire again.
    let duplicate = client.acquire_lock("job", &body, Some("k1")).await.unwrap();
    assert_eq!((&duplicate.owner, duplicate.fence), (&grant.owner, grant.fence));
    assert_eq!(duplicate.expires_in_ms, 0);
    assert!(!client.lock("job").await.unwrap().held);
}

#[tokio::test]
async fn after_kill_9_a_repeated_request_finds_its_own_lease_and_fences_grow() {
    for redis in [None, Some(RedisServer::start())] {
        finds_its_own_lease_after_kill_9(&mut open_on(redis.as_ref())).await;
    }
}

async fn finds_its_own_lease_after_kill_9(stage: &mut Stage) {
    let mut client = Client::new(stage.address());
    let body = AcquireLock { label: Some("worker".to_owned()), ..wanted(600_000, 0) };
    let other = granted(&mut client, "other", 600_000).await;
    let grant = client.acquire_lock("job", &body, Some("k1")).await.unwrap();
    stage.server.kill9();
    stage.restart();
    let mut client = Client::new(stage.address());
    let again = client.acquire_lock("job", &body, Some("k1")).await.unwrap();
    assert_eq!((&again.owner, again.fence), (&grant.owner, grant.fence));
    assert_eq!(code(client.acquire_lock("job", &body, Some("k2")).await), "lock-held");
    assert_eq!(code(client.acquire_lock("other", &body, None).await), "lock-held");
    client.release_lock("other", &other.owner).await.unwrap();
    client.release_lock("job", &grant.owner).await.unwrap();
    for name in ["job", "other", "new"] {
        let next = granted(&mut client, name, 1_000).await;
        assert!(next.fence > grant.fence || next.guarantee == "lease", "fences never fall: {name}");
    }
}

#[tokio::test]
async fn listing_goes_page_by_page() {
    for redis in [None, Some(RedisServer::start())] {
        let stage = open_on(redis.as_ref());
        let mut client = Client::new(stage.address());
        let mut expected: Vec<String> = (0..25).map(|number| format!("order:{number:02} *")).collect();
        for name in expected.iter().map(String::as_str).chain(["orders", "other:1"]) {
            granted(&mut client, name, 600_000).await;
        }
        let (mut names, mut cursor, mut pages) = (Vec::new(), None, 0);
        loop {
            let after = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
            let path = format!("/v1/locks?prefix=order%3A&limit=10{after}");
            let answer = client.send(Request::get(path)).await.unwrap();
            assert_eq!(answer.status, 200, "{answer:?}");
            assert!(!String::from_utf8_lossy(&answer.body).contains("owner"), "no tokens in a list");
            let page: LockList = answer.json().unwrap();
            assert!(page.locks.iter().all(|lock| lock.held && lock.remaining_ms.is_some()));
            names.extend(page.locks.into_iter().map(|lock| lock.name));
            pages += 1;
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        names.sort();
        names.dedup();
        expected.sort();
        assert_eq!(names, expected);
        assert!(pages >= 3, "{pages} pages");
        assert_eq!(client.locks("other", None).await.unwrap().locks.len(), 1);
        shows_everything(&stage, redis.is_none()).await;
        if let Some(redis) = &redis {
            let commands: String = redis.command(&["INFO", "commandstats"]);
            assert!(commands.contains("cmdstat_scan:") && !commands.contains("cmdstat_keys:"), "{commands}");
        }
    }
}

/// A listed lock has what the same lock has alone.
async fn shows_everything(stage: &Stage, has_fences: bool) {
    let mut client = Client::new(stage.address());
    let body = AcquireLock { label: Some("host-7/job".to_owned()), ..wanted(600_000, 0) };
    let grant = client.acquire_lock("shown", &body, None).await.unwrap();
    let mut other = Client::new(stage.address());
    let waiting =
        tokio::spawn(async move { other.acquire_lock("shown", &wanted(1_000, 60_000), None).await });
    until(&mut client, "shown", |view| view.waiters == 1).await;
    let page = client.locks("shown", None).await.unwrap();
    let [lock] = page.locks.as_slice() else { panic!("one lock, not {page:?}") };
    assert_eq!((lock.held, lock.waiters, lock.label.as_deref()), (true, 1, Some("host-7/job")), "{lock:?}");
    assert_eq!((lock.fence, lock.fence.is_some()), (grant.fence, has_fences), "{lock:?}");
    assert!(lock.age_ms.is_some_and(|age| age < 30_000), "{lock:?}");
    assert!(lock.remaining_ms.is_some_and(|left| (500_000..=600_000).contains(&left)), "{lock:?}");
    waiting.abort();
}

#[tokio::test]
async fn hold_times_become_advice_and_counters() {
    let stage = open(&[]);
    let mut client = Client::new(stage.address());
    for number in 0..25 {
        let name = format!("invoice:{number}");
        let grant = granted(&mut client, &name, 60_000).await;
        client.release_lock(&name, &grant.owner).await.unwrap();
    }
    // Long enough for the answer to come within it on a machine that is busy.
    let _unreleased = granted(&mut client, "invoice:late", 500).await;
    let view = until(&mut client, "invoice:late", |view| !view.held).await;
    let advice = view.advice.expect("25 hold times are enough");
    assert_eq!((advice.class.as_str(), advice.samples, advice.ttl_ms), ("invoice", 25, 3_000));
    assert_eq!(client.lock("receipt:1").await.unwrap().advice, None);

    granted(&mut client, "invoice:late", 60_000).await;
    assert_eq!(code(client.acquire_lock("invoice:late", &wanted(10, 0), None).await), "lock-held");
    let metrics = client.send(Request::get("/metrics")).await.unwrap();
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    for line in [
        "leasehold_lock_granted_total 27",
        "leasehold_lock_contended_total 1",
        "leasehold_lock_timed_out_total 1",
        "leasehold_lock_hold_seconds_count 25",
        "leasehold_lock_wait_seconds_count 27",
        "leasehold_lock_ended_unreleased_total 1",
        "leasehold_lock_waiting 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");
    }
}

#[tokio::test]
async fn owner_tokens_are_in_no_log_and_in_no_answer_but_the_first() {
    let stage = open(&["--log", "trace"]);
    let mut client = Client::new(stage.address());
    let body = wanted(60_000, 0);
    let grant = client.acquire_lock("secret-job", &body, Some("key-of-the-job")).await.unwrap();
    let mut seen = String::new();
    for path in ["/v1/locks/secret-job", "/v1/locks", "/metrics"] {
        seen += &String::from_utf8_lossy(&client.send(Request::get(path)).await.unwrap().body);
    }
    assert_eq!(code(client.acquire_lock("secret-job", &body, None).await), "lock-held");
    client.renew_lock("secret-job", &grant.owner, Duration::from_secs(60)).await.unwrap();
    client.release_lock("secret-job", &grant.owner).await.unwrap();
    let refused = client.send(Request::release_lock("secret-job", &grant.owner)).await.unwrap();
    seen += &String::from_utf8_lossy(&refused.body);
    let log = stage.server.log();
    assert!(log.contains("/v1/locks/secret-job"), "the log has the requests: {log}");
    for secret in [&grant.owner[..24], "key-of-the-job"] {
        assert!(!seen.contains(secret), "{seen}");
        assert!(!log.contains(secret), "the log tells a secret");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_are_told_when_the_server_stops() {
    let mut stage = open(&[]);
    let mut client = Client::new(stage.address());
    let _holder = granted(&mut client, "gate", 600_000).await;
    let mut other = Client::new(stage.address());
    let waiting = tokio::spawn(async move {
        other.send(Request::acquire_lock("gate", &wanted(60_000, 60_000))).await.unwrap()
    });
    until(&mut client, "gate", |view| view.waiters == 1).await;
    let began = std::time::Instant::now();
    assert!(tokio::task::block_in_place(|| stage.server.sigterm_and_wait()).success());
    assert!(began.elapsed() < Duration::from_secs(8), "nobody waits for waiters: {:?}", began.elapsed());
    let answer = waiting.await.unwrap();
    assert_eq!((answer.status, answer.code().as_deref()), (503, Some("overloaded")));
}
