//! Every write of the sale, sent again under its key: the same answer, no second effect, at once and after all others.

use std::collections::BTreeSet;
use std::path::Path;

use leasehold_api::{BlockView, BookingView};
use leasehold_client::Request;
use leasehold_testkit::{Answer, Desk, Granted, Stage};
use serde_json::{Value, json};

/// Everything that a write may change. The log has an entry for every change of the event.
const STATE: [&str; 4] = [
    "/v1/events",
    "/v1/events/gala/availability",
    "/v1/events/gala/refunds",
    "/v1/operator/events/gala/log?limit=500",
];

/// A desk that remembers its writes.
struct Writer {
    desk: Desk,
    written: Vec<(Request, Answer)>,
}

impl Writer {
    /// Writes, and writes again.
    async fn write(&mut self, request: Request) -> Answer {
        let request = request.idempotency_key(format!("write-{}", self.written.len()));
        let first = self.desk.send(request.clone()).await;
        assert!(first.is_success(), "{request:?}: {first:?}");
        assert!(first.header("idempotency-replayed").is_none(), "{request:?}: {first:?}");
        self.repeat(&request, &first).await;
        self.written.push((request, first.clone()));
        first
    }

    async fn repeat(&mut self, request: &Request, first: &Answer) {
        let before = self.state().await;
        let again = self.desk.send(request.clone()).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body), "{request:?}");
        assert_eq!(again.header("idempotency-replayed"), Some("true"), "{request:?}: {again:?}");
        assert_eq!(self.state().await, before, "{request:?} had a second effect");
    }

    async fn state(&mut self) -> Vec<Value> {
        let mut state = Vec::new();
        for path in STATE {
            let answer = self.desk.send(Request::get(path)).await;
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            let mut view: Value = answer.view().unwrap();
            // Of the log only its entries: beside them stands how long the holds still last.
            state.push(if path.contains("/log") { view["entries"].take() } else { view });
        }
        state
    }

    async fn hold(&mut self, items: Value) -> Granted {
        let body = json!({"items": items, "ttl_ms": 600_000});
        let answer = self.write(Request::post("/v1/events/gala/holds", &body)).await;
        Granted::of(&answer).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_repeated_under_its_key_has_one_effect_and_one_answer() {
    let stage = Stage::open(Path::new(env!("CARGO_BIN_EXE_leasehold")));
    let mut writer = Writer { desk: stage.desk(0), written: Vec::new() };
    let event = json!({"id": "gala", "seats": ["A-1", "A-2", "A-3", "A-4", "A-5", "A-6"],
        "pools": [{"id": "floor", "capacity": 10}]});
    writer.desk.send(Request::post("/v1/events", &event)).await;
    writer.write(Request::post("/v1/events", &json!({"id": "other", "seats": ["B-1"]}))).await;
    let more = json!({"pools": [{"id": "floor", "capacity": 20}], "policy": {"extends_max": 9}});
    writer.write(Request::patch("/v1/events/gala", &more)).await;

    let blocked = json!({"seats": ["A-6"], "pools": [{"id": "floor", "quantity": 2}], "reason": "a pillar"});
    let block = writer.write(Request::post("/v1/events/gala/blocks", &blocked)).await;
    let block = block.view::<BlockView>().unwrap().block_id;
    writer.write(Request::delete(format!("/v1/events/gala/blocks/{block}"))).await;

    let sold = writer.hold(json!([{"seat": "A-1"}, {"pool": "floor", "quantity": 2}])).await;
    let of_sold = |path: &str| format!("/v1/holds/{}{path}", sold.id);
    for (path, body) in [
        ("", json!({"extend_ms": 700_000})),
        ("", json!({"add": [{"seat": "A-2"}, {"pool": "floor", "quantity": 3}]})),
        ("", json!({"remove": [{"pool": "floor", "quantity": 1}], "add": [{"best": {"count": 1}}]})),
    ] {
        writer.write(Request::patch(of_sold(path), &body).secret(&sold.secret)).await;
    }
    for (path, body) in [
        ("/payment", json!({"payment_ref": "pay-1"})),
        ("/payment/failed", json!({"payment_ref": "pay-1"})),
        ("/payment", json!({"payment_ref": "pay-2"})),
        ("/confirm", json!({"payment_ref": "pay-2", "items": [{"seat": "A-1"}]})),
    ] {
        writer.write(Request::post(of_sold(path), &body).secret(&sold.secret)).await;
    }
    let whole = writer.hold(json!([{"seat": "A-4"}])).await;
    let confirm = Request::post(format!("/v1/holds/{}/confirm", whole.id), &json!({"order_ref": "order-1"}));
    let booking = writer.write(confirm.secret(&whole.secret)).await.view::<BookingView>().unwrap();
    let cancel = format!("/v1/bookings/{}/cancel", booking.booking_id);
    writer.write(Request::post(cancel, &json!({"reason": "rain"}))).await;

    let released = writer.hold(json!([{"best": {"count": 1}}])).await;
    writer.write(Request::delete(format!("/v1/holds/{}", released.id)).secret(&released.secret)).await;
    let revoked = writer.hold(json!([{"pool": "floor", "quantity": 5}])).await;
    writer
        .write(Request::post(format!("/v1/holds/{}/revoke", revoked.id), &json!({"reason": "a tout"})))
        .await;
    writer.write(Request::patch("/v1/events/gala", &json!({"state": "closed"}))).await;

    // Much has happened since: what would be done again now would be seen.
    for (request, first) in std::mem::take(&mut writer.written) {
        writer.repeat(&request, &first).await;
        writer.written.push((request, first));
    }
    assert_eq!(routes_written(&writer.written), routes_to_write(&mut writer.desk).await);
    stage.judge().await.assert_clean();
}

/// The writes that the API's description knows. Those of locks have tests of their own.
async fn routes_to_write(desk: &mut Desk) -> BTreeSet<String> {
    let document: Value = desk.send(Request::get("/openapi.json")).await.view().unwrap();
    let mut routes = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|method| *method != "get") {
            if !path.starts_with("/v1/locks") {
                routes.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    routes
}

fn routes_written(written: &[(Request, Answer)]) -> BTreeSet<String> {
    let route = |(request, _): &(Request, Answer)| {
        let mut parts: Vec<&str> = request.path.split('/').collect();
        for (place, name) in [(3, parts.get(2).copied()), (5, parts.get(4).copied())] {
            let parameter = match name {
                Some("events") => "{event}",
                Some("holds") => "{hold}",
                Some("bookings") => "{booking}",
                Some("blocks") => "{block}",
                _ => continue,
            };
            if let Some(part) = parts.get_mut(place) {
                *part = parameter;
            }
        }
        format!("{} {}", request.method, parts.join("/"))
    };
    written.iter().map(route).collect()
}
