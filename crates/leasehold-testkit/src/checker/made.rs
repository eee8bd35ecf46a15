//! Histories written by hand, to test the checker with.
//!
//! Times are milliseconds since the history's start; the server's clock shows the same.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Checked, check};
use crate::history::{Answer, History, Operation, Outcome, SentRequest};

/// The wall clock at the start: 2026-01-01T00:00:00Z.
const START_SECONDS: u64 = 1_767_225_600;

/// A history in the making.
#[derive(Default)]
pub(super) struct Made {
    operations: Vec<Operation>,
    final_from: Option<usize>,
}

/// When something was asked, and when it was answered.
pub(super) type Span = (u64, u64);

impl Made {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn judge(self) -> Checked {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(START_SECONDS);
        check(&History::made(wall, self.operations, self.final_from))
    }

    /// What follows is the read-back.
    pub(super) fn finally(mut self) -> Self {
        self.final_from = Some(self.operations.len());
        self
    }

    /// A granted hold of one seat with this fence: its secret is `secret-` and its id, its key `key-` and its id.
    pub(super) fn hold(self, span: Span, id: &str, seat: &str, fence: u64, ttl_ms: u64) -> Self {
        let view = hold_view(id, "held", span.0, span.0 + ttl_ms, json!([{"seat": seat, "fence": fence}]));
        self.granted(span, id, &view)
    }

    pub(super) fn pool_hold(self, span: Span, id: &str, quantity: u32, ttl_ms: u64) -> Self {
        let view =
            hold_view(id, "held", span.0, span.0 + ttl_ms, json!([{"pool": "p", "quantity": quantity}]));
        self.granted(span, id, &view)
    }

    pub(super) fn granted(self, span: Span, id: &str, view: &Value) -> Self {
        let mut view = view.clone();
        view["secret"] = json!(format!("secret-{id}"));
        let key = format!("key-{id}");
        self.answered(span, "POST /v1/events/e/holds", &[("idempotency-key", &key)], 201, &view)
    }

    pub(super) fn extended(self, span: Span, id: &str, seat: &str, expires_ms: u64) -> Self {
        let mut view = hold_view(id, "held", 0, expires_ms, json!([{"seat": seat, "fence": 1}]));
        view["version"] = json!(2);
        let secret = format!("secret-{id}");
        self.answered(span, &format!("PATCH /v1/holds/{id}"), &[("hold-secret", &secret)], 200, &view)
    }

    pub(super) fn released(self, span: Span, id: &str, secret: &str) -> Self {
        let view = hold_view(id, "released", 0, 1, json!([]));
        self.answered(span, &format!("DELETE /v1/holds/{id}"), &[("hold-secret", secret)], 200, &view)
    }

    /// A request about a hold that got no answer.
    pub(super) fn unanswered(mut self, started: u64, line: &str, secret: &str) -> Self {
        self.push((started, 0), line, &[("hold-secret", secret)], Outcome::NoAnswer);
        self
    }

    /// A sale of one seat.
    pub(super) fn sold(self, span: Span, hold: &str, booking: &str, seat: &str) -> Self {
        let secret = format!("secret-{hold}");
        let view = booking_view(booking, hold, "booked", span.0, json!([{"seat": seat, "fence": 1}]));
        self.answered(
            span,
            &format!("POST /v1/holds/{hold}/confirm"),
            &[("hold-secret", &secret)],
            201,
            &view,
        )
    }

    pub(super) fn cancelled(self, span: Span, booking: &str) -> Self {
        let view = booking_view(booking, "h", "cancelled", span.0, json!([]));
        self.answered(span, &format!("POST /v1/bookings/{booking}/cancel"), &[], 200, &view)
    }

    /// Seats kept back from sale at the first moment of the span.
    pub(super) fn blocked(self, span: Span, id: &str, seats: &[&str]) -> Self {
        let view = json!({"block_id": id, "event": "e", "seats": seats, "created_at": stamp(span.0)});
        self.answered(span, "POST /v1/events/e/blocks", &[("idempotency-key", id)], 201, &view)
    }

    pub(super) fn unblocked(self, span: Span, id: &str) -> Self {
        self.answered(span, &format!("DELETE /v1/events/e/blocks/{id}"), &[], 204, &json!(null))
    }

    pub(super) fn reads_hold(self, at: u64, id: &str, status: u16, view: &Value) -> Self {
        let secret = format!("secret-{id}");
        self.answered((at, at + 1), &format!("GET /v1/holds/{id}"), &[("hold-secret", &secret)], status, view)
    }

    pub(super) fn reads_booking(self, at: u64, id: &str, status: u16, view: &Value) -> Self {
        self.answered((at, at + 1), &format!("GET /v1/bookings/{id}"), &[], status, view)
    }

    /// The event with 10 seats and a pool `p` of 5, and this many of them sold.
    pub(super) fn reads_event(self, at: u64, free: u32, sold: u32, pool_sold: u32) -> Self {
        self.reads_numbers(at, [free, sold], [0, pool_sold])
    }

    /// The same event with this many units of the pool held, and nothing else.
    pub(super) fn reads_pool(self, at: u64, held: u32) -> Self {
        self.reads_numbers(at, [10, 0], [held, 0])
    }

    /// The same event with this many of its seats held, and nothing else.
    pub(super) fn reads_held(self, at: u64, held: u32) -> Self {
        self.reads_seats(at, "held", held)
    }

    /// The same event with this many of its seats blocked, and nothing else.
    pub(super) fn reads_blocked(self, at: u64, blocked: u32) -> Self {
        self.reads_seats(at, "blocked", blocked)
    }

    fn reads_seats(self, at: u64, taken: &str, count: u32) -> Self {
        let mut read = self.reads_numbers(at, [10 - count, 0], [0, 0]);
        let Some(Outcome::Answer(answer)) = read.operations.last_mut().map(|read| &mut read.outcome) else {
            unreachable!("a read was just added")
        };
        let mut view = answer.json();
        view["seats"][taken] = json!(count);
        answer.body = Bytes::from(view.to_string());
        read
    }

    fn reads_numbers(self, at: u64, [free, sold]: [u32; 2], [pool_held, pool_sold]: [u32; 2]) -> Self {
        let policy = json!({"hold_ttl_ms": 1, "hold_total_max_ms": 1, "extends_max": 1, "payment_max_ms": 1,
            "units_per_holder_max": 0, "accept_late_payment": true, "at_payment_deadline": "expire"});
        let view = json!({"id": "e", "name": "e", "state": "open", "version": "1-1", "created_at": stamp(0),
            "seats": {"total": 10, "free": free, "held": 0, "sold": sold, "blocked": 0},
            "pools": [{"id": "p", "capacity": 5, "free": 5 - pool_sold - pool_held, "held": pool_held, "sold": pool_sold, "blocked": 0}],
            "policy": policy});
        self.answered((at, at + 1), "GET /v1/events/e", &[], 200, &view)
    }

    pub(super) fn answered(
        mut self,
        span: Span,
        line: &str,
        headers: &[(&str, &str)],
        status: u16,
        body: &Value,
    ) -> Self {
        let body = Bytes::from(body.to_string());
        self.push(span, line, headers, Outcome::Answer(Answer { status, headers: Vec::new(), body }));
        self
    }

    /// The body of the request before.
    pub(super) fn with_body(mut self, body: &Value) -> Self {
        let last = self.operations.last_mut().expect("a request was made before its body");
        last.request.body = Bytes::from(body.to_string());
        self
    }

    fn push(&mut self, span: Span, line: &str, headers: &[(&str, &str)], outcome: Outcome) {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let headers = headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        self.operations.push(Operation {
            client: 1,
            started: Duration::from_millis(span.0),
            ended: matches!(outcome, Outcome::Answer(_)).then(|| Duration::from_millis(span.1)),
            request: SentRequest {
                method: method.to_owned(),
                path: path.to_owned(),
                headers,
                body: Bytes::new(),
            },
            outcome,
        });
    }
}

pub(super) fn stamp(at_ms: u64) -> String {
    let instant = jiff::Timestamp::from_millisecond(i64::try_from(START_SECONDS * 1_000 + at_ms).unwrap());
    instant.unwrap().to_string()
}

pub(super) fn hold_view(id: &str, state: &str, created_ms: u64, expires_ms: u64, items: Value) -> Value {
    json!({"hold_id": id, "event": "e", "state": state, "items": items, "version": 1,
        "created_at": stamp(created_ms), "expires_at": stamp(expires_ms), "expires_in_ms": 1,
        "hard_deadline": stamp(expires_ms + 1_000_000)})
}

pub(super) fn booking_view(id: &str, hold: &str, state: &str, booked_ms: u64, items: Value) -> Value {
    json!({"booking_id": id, "hold_id": hold, "event": "e", "state": state, "items": items, "revived": false,
        "booked_at": stamp(booked_ms)})
}
