//! What is said of a hold that was forgotten, on a server whose clock the test moves.

use std::sync::Arc;

use leasehold_api::{ConfirmHold, CreateEvent, CreateHold, HoldView, ItemSpec, Problem, SeatSpec};
use leasehold_client::{Client, Request, Response};
use leasehold_core::Millis;
use leasehold_engine::{Clock, EmbeddedEngine, EmbeddedOptions};
use leasehold_lock::{Locker, Memory};
use leasehold_server::ServerConfig;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn a_late_payment_for_a_forgotten_hold_must_be_given_back_if_its_secret_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(Clock::system().now());
    let options = EmbeddedOptions::new(folder.path().join("forgotten.db")).clock(clock.clone());
    let engine = Arc::new(EmbeddedEngine::open(options).unwrap());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = Client::new(&listener.local_addr().unwrap().to_string());
    let stop = CancellationToken::new();
    let locker = Locker::new(Memory::new());
    let server = leasehold_server::serve(listener, engine, locker, ServerConfig::default(), stop.clone());
    let server = tokio::spawn(server);

    let seats = vec![SeatSpec::Id("A-1".to_owned())];
    let event = CreateEvent { id: "gala".to_owned(), seats, ..CreateEvent::default() };
    assert_eq!(client.send(Request::post("/v1/events", &event)).await.unwrap().status, 201);
    let hold = CreateHold { items: vec![ItemSpec::seat("A-1")], ..CreateHold::default() };
    let hold = client.send(Request::post("/v1/events/gala/holds", &hold)).await.unwrap();
    let hold: HoldView = hold.json().unwrap();
    let secret = hold.secret.clone().unwrap();
    clock.set(clock.now().after(Millis(26 * 60 * 60 * 1_000)));
    // The first look ends the hold, the second finds it forgotten.
    for _ in 0..2 {
        client.send(Request::get(format!("/v1/holds/{}", hold.hold_id)).secret(&secret)).await.unwrap();
    }

    let confirm = |id: &str, payment: Option<&str>, items: Option<Vec<ItemSpec>>| {
        let payment_ref = payment.map(str::to_owned);
        let body = ConfirmHold { payment_ref, items, ..ConfirmHold::default() };
        Request::post(format!("/v1/holds/{id}/confirm"), &body)
    };
    let whole = confirm(&hold.hold_id, Some("pay-1"), None).secret(&secret);
    let part = confirm(&hold.hold_id, Some("pay-1"), Some(vec![ItemSpec::seat("A-1")])).secret(&secret);
    for request in [whole.clone(), whole.clone().idempotency_key("k"), whole.idempotency_key("k"), part] {
        let answer = client.send(request).await.unwrap();
        let problem: Problem = answer.json().unwrap();
        assert_eq!((answer.status, &*problem.code), (409, "refund-due"), "{problem:?}");
        assert_eq!(problem.payment_ref.as_deref(), Some("pay-1"));
        assert!(problem.detail.unwrap().contains("not known any more"));
    }

    let never = "hold_00000000000000000000000007";
    let mut absent: Vec<Response> = Vec::new();
    for request in [
        confirm(&hold.hold_id, None, None).secret(&secret),
        confirm(&hold.hold_id, Some("pay-1"), None),
        confirm(&hold.hold_id, Some("pay-1"), None).secret("0".repeat(32)),
        confirm(&hold.hold_id, Some("pay-1"), Some(vec![ItemSpec::seat("A-1")])),
        confirm(never, Some("pay-1"), None).secret(&secret),
        confirm(never, Some("pay-1"), Some(vec![ItemSpec::seat("A-1")])).secret(&secret),
    ] {
        absent.push(client.send(request).await.unwrap());
    }
    assert!(absent.iter().all(|answer| answer.status == 404), "{absent:?}");
    assert!(absent.iter().all(|answer| answer.body == absent[0].body), "{absent:?}");
    stop.cancel();
    server.await.unwrap();
}
