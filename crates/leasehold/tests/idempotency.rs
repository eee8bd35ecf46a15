//! A repeated request has one effect and one answer: in a storm, over a crash, and never for another body.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_api::{ConfirmHold, CreateEvent, CreateHold, ItemSpec, PoolSpec, SeatSpec};
use leasehold_client::Request;
use leasehold_testkit::servers::{Direction, FaultProxy};
use leasehold_testkit::{Answer, Desk, Granted, Outcome, Random, RecordingClient, Stage, repeat_after_kill};
use tokio::sync::{Barrier, Notify};
use tokio::task::JoinSet;

const STORM: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);

async fn open() -> (Stage, Desk) {
    let stage = Stage::open(Path::new(env!("CARGO_BIN_EXE_leasehold")));
    let mut desk = stage.desk(0);
    let seats = (1..=20).map(|number| SeatSpec::Id(format!("A-{number}"))).collect();
    let pools = vec![PoolSpec { id: "floor".to_owned(), capacity: 1_000 }];
    desk.create_event(&CreateEvent { id: "gala".to_owned(), seats, pools, ..CreateEvent::default() }).await;
    (stage, desk)
}

/// Sends the same request from 64 connections at one moment; each is repeated until its answer is final.
///
/// The writer waits for whoever else has the file. It is given back when the server itself has said that the first is
/// being worked on while another asks.
async fn storm(stage: &Stage, request: &Request) -> Vec<Answer> {
    let other = rusqlite::Connection::open(stage.data()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let together = Arc::new(Notify::new());
    let start = Arc::new(Barrier::new(STORM));
    let mut senders = JoinSet::new();
    for number in 1..=STORM {
        let mut client = RecordingClient::new(stage.address(), number, &stage.history);
        let (start, together, request) = (Arc::clone(&start), Arc::clone(&together), request.clone());
        senders.spawn(async move {
            assert!(client.connect().await);
            start.wait().await;
            for _ in 0..1_000 {
                let answer = client.send(request.clone()).await.answered("a request of the storm");
                if answer.code().as_deref() != Some("idempotency-in-flight") {
                    return answer;
                }
                together.notify_one();
                assert_eq!(answer.status, 409);
                assert!(answer.header("retry-after").is_some(), "in flight without Retry-After: {answer:?}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            panic!("in flight for ever");
        });
    }
    tokio::time::timeout(PATIENCE, together.notified()).await.expect("two are worked on at one time");
    other.execute_batch("ROLLBACK").unwrap();
    senders.join_all().await
}

fn assert_one_answer(answers: &[Answer]) {
    assert_eq!(answers.len(), STORM);
    for answer in answers {
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(answer.body, answers[0].body, "two answers to one key");
    }
    let first_times = answers.iter().filter(|answer| answer.header("idempotency-replayed").is_none()).count();
    assert!(first_times <= 1, "{first_times} answers claim to be the first");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_one_hold_request_makes_one_hold() {
    let (stage, mut desk) = open().await;
    let items = vec![ItemSpec::seat("A-1"), ItemSpec::pool("floor", 3)];
    let body = CreateHold { items, holder: Some("u1".to_owned()), ttl_ms: Some(600_000) };
    let request = Request::post("/v1/events/gala/holds", &body).idempotency_key("storm-1");
    assert_one_answer(&storm(&stage, &request).await);
    let event = desk.show_event("gala").await;
    assert_eq!((event.seats.held, event.pools[0].held), (1, 3));
    let checked = stage.judge().await;
    checked.assert_clean();
    checked.assert_meaningful(STORM);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_one_confirm_makes_one_booking() {
    let (stage, mut desk) = open().await;
    let hold = desk.granted("gala", "A-2", 600_000).await;
    let body = ConfirmHold { payment_ref: Some("pay-1".to_owned()), ..ConfirmHold::default() };
    let request = Request::post(format!("/v1/holds/{}/confirm", hold.id), &body);
    assert_one_answer(&storm(&stage, &request.secret(&hold.secret).idempotency_key("storm-2")).await);
    assert_eq!(desk.show_event("gala").await.seats.sold, 1);
    let checked = stage.judge().await;
    checked.assert_clean();
    checked.assert_meaningful(STORM);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_one_event_makes_one_event() {
    let (stage, _) = open().await;
    let seats = vec![SeatSpec::Id("B-1".to_owned())];
    let event = CreateEvent { id: "late-show".to_owned(), seats, ..CreateEvent::default() };
    let request = Request::post("/v1/events", &event).idempotency_key("storm-3");
    assert_one_answer(&storm(&stage, &request).await);
    stage.judge().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_first_is_worked_on_a_repetition_is_told_to_come_back() {
    let (stage, mut desk) = open().await;
    // The writer waits for whoever else has the file, so nothing is answered meanwhile.
    let other = rusqlite::Connection::open(stage.data()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let body = CreateHold { items: vec![ItemSpec::seat("A-1")], ..CreateHold::default() };
    let request = Request::post("/v1/events/gala/holds", &body).idempotency_key("in-flight");
    let mut senders = JoinSet::new();
    for number in 1..=2 {
        let (mut desk, request) = (stage.desk(number), request.clone());
        senders.spawn(async move { desk.send(request).await });
    }
    let in_flight = senders.join_next().await.unwrap().unwrap();
    assert_eq!((in_flight.status, in_flight.code().as_deref()), (409, Some("idempotency-in-flight")));
    assert!(in_flight.header("retry-after").is_some(), "{in_flight:?}");
    other.execute_batch("ROLLBACK").unwrap();
    let first = senders.join_next().await.unwrap().unwrap();
    assert_eq!(first.status, 201, "{first:?}");
    let again = desk.send(request).await;
    assert_eq!((&again.body, again.header("idempotency-replayed")), (&first.body, Some("true")));
    stage.judge().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_repeated_after_a_crash_finds_its_one_effect() {
    const ROUNDS: usize = 60;
    let mut random = Random::new(Random::seed_of_this_run("idempotency"));
    let mut stage = Stage::open(Path::new(env!("CARGO_BIN_EXE_leasehold")));
    let seen = repeat_after_kill(&mut stage, &mut random, ROUNDS, 8_000).await;
    assert!(seen.complaints.is_empty(), "{:#?}", seen.complaints);
    let (unanswered, committed) = (seen.unanswered, seen.committed_unanswered);
    println!(
        "{ROUNDS} kills: {} answered before, {unanswered} not, {committed} of them committed",
        seen.answered_first
    );
    assert!(seen.unanswered >= ROUNDS / 10, "too few kills before the answer: {seen:?}");
    assert!(seen.answered_first >= ROUNDS / 10, "too few kills after the answer: {seen:?}");
    stage.judge().await.assert_clean();
}

/// A kill rarely falls between commit and answer by itself: here the answer is held back until the server is dead.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_killed_between_its_commit_and_its_answer_finds_its_one_effect() {
    let (mut stage, _) = open().await;
    for round in 1..=5 {
        let items = vec![ItemSpec::seat(format!("A-{round}")), ItemSpec::pool("floor", 3)];
        let body = CreateHold { items, holder: None, ttl_ms: Some(600_000) };
        let request = Request::post("/v1/events/gala/holds", &body).idempotency_key(format!("key-{round}"));
        let proxy = FaultProxy::start(stage.address()).await;
        let mut client = RecordingClient::new(&proxy.address(), 1, &stage.history);
        assert!(client.connect().await);
        proxy.swallow(Direction::Answers);
        let sending = tokio::spawn({
            let request = request.clone();
            async move { client.send(request).await }
        });
        proxy.wait_for(|traffic| traffic.swallowed_answer_bytes > 0).await;
        stage.server.kill9();
        proxy.cut().await;
        let first = sending.await.unwrap();
        assert!(matches!(first, Outcome::NoAnswer), "{first:?}");
        stage.restart();
        let again = stage.desk(0).send(request.clone()).await;
        assert_eq!(again.status, 201, "{again:?}");
        assert!(again.header("idempotency-replayed").is_some(), "it was done twice: {again:?}");
        let once_more = stage.desk(1).send(request.clone()).await;
        assert_eq!((once_more.status, &once_more.body), (again.status, &again.body));
        let event = stage.desk(0).show_event("gala").await;
        assert_eq!((event.seats.held, event.pools[0].held), (round, 3 * round));
    }
    stage.judge().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_another_body_is_refused_and_changes_nothing() {
    let (stage, mut desk) = open().await;
    let hold = |seat: &str| {
        let body =
            CreateHold { items: vec![ItemSpec::seat(seat)], ttl_ms: Some(600_000), ..CreateHold::default() };
        Request::post("/v1/events/gala/holds", &body).idempotency_key("one-key")
    };
    let first = desk.send(hold("A-3")).await;
    assert_eq!(first.status, 201);
    let other = desk.send(hold("A-4")).await;
    assert_eq!((other.status, other.code().as_deref()), (422, Some("idempotency-mismatch")));
    assert_eq!(desk.send(hold("A-3")).await.body, first.body);
    assert_eq!(desk.show_event("gala").await.seats.held, 1);
    stage.judge().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_may_be_repeated_with_its_key_and_then_be_granted() {
    let (stage, mut desk) = open().await;
    let taken = desk.granted("gala", "A-5", 600_000).await;
    let body =
        CreateHold { items: vec![ItemSpec::seat("A-5")], ttl_ms: Some(600_000), ..CreateHold::default() };
    let request = Request::post("/v1/events/gala/holds", &body).idempotency_key("patience");
    let refused = desk.send(request.clone()).await;
    assert_eq!((refused.status, refused.code().as_deref()), (409, Some("seat-taken")));
    assert!(desk.release(&taken).await.is_success());
    let granted = desk.send(request.clone()).await;
    assert!(Granted::of(&granted).is_some(), "{granted:?}");
    let replayed = desk.send(request).await;
    assert_eq!(replayed.body, granted.body);
    assert!(replayed.header("idempotency-replayed").is_some());
    stage.judge().await.assert_clean();
}
