//! A server with one event, one hold, one booking and one lock, and the assertion that a request leaves them as they
//! are.
//!
//! A table of bad inputs is read to its end: what is wrong is collected, and the test fails with all of it. At the end
//! the independent checker judges what else was asked.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use leasehold_api::{
    AcquireLock, BlockView, Code, CreateEvent, LockGrant, LockView, PolicySpec, PoolSpec, SeatSpec,
};
use leasehold_client::{Client, Request};
use leasehold_testkit::{Desk, Granted, RawAnswer, Stage, exchange, request_bytes, try_exchange};
use serde_json::json;
use tokio::runtime::Handle;

/// No refusal may take longer, however large the input.
const REFUSED_WITHIN: Duration = Duration::from_secs(2);

/// Event `gala` with seats A-1 to A-8 and a pool `floor` of 10; A-1 is held, A-2 is sold, A-8 is kept back; the lock
/// `job` is held.
pub(crate) struct Venue {
    pub(crate) stage: Stage,
    pub(crate) desk: Desk,
    pub(crate) hold: Granted,
    pub(crate) booking: String,
    pub(crate) block: String,
    pub(crate) lock: LockGrant,
    complaints: Mutex<Vec<String>>,
}

/// A request that is to be refused.
#[derive(Clone, Debug)]
pub(crate) struct Bad {
    pub(crate) what: String,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// A write with a JSON body: where, with which body, and the field that holds a duration or a count.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    /// A body that would be accepted, where one is.
    pub(crate) good: &'static str,
    /// True when a body is needed, because it has a required field.
    pub(crate) required: bool,
}

impl Venue {
    pub(crate) async fn open() -> Self {
        let stage = Stage::open(Path::new(env!("CARGO_BIN_EXE_leasehold")));
        let mut desk = stage.desk(0);
        let policy = PolicySpec { units_per_holder_max: Some(0), ..PolicySpec::default() };
        let event = CreateEvent {
            id: "gala".to_owned(),
            seats: (1..=8).map(|number| SeatSpec::Id(format!("A-{number}"))).collect(),
            pools: vec![PoolSpec { id: "floor".to_owned(), capacity: 10 }],
            policy: Some(policy),
            ..CreateEvent::default()
        };
        desk.create_event(&event).await;
        let hold = desk.granted("gala", "A-1", 600_000).await;
        let sold = desk.granted("gala", "A-2", 600_000).await;
        let booking = desk.sold(&sold, Some("pay-0")).await.booking_id;
        let block = Request::post("/v1/events/gala/blocks", &json!({"seats": ["A-8"]}));
        let block = desk.send(block).await.view::<BlockView>().expect("a block").block_id;
        let wanted = AcquireLock { ttl_ms: Some(3_600_000), ..AcquireLock::default() };
        let lock = Client::new(stage.address()).acquire_lock("job", &wanted, None).await.unwrap();
        Self { stage, desk, hold, booking, block, lock, complaints: Mutex::default() }
    }

    /// Every write of the API that takes a JSON body.
    pub(crate) fn writes(&self) -> Vec<Write> {
        let hold = &self.hold.id;
        let write = |method, path: String, good, required| Write { method, path, good, required };
        vec![
            write("POST", "/v1/events".into(), r#"{"id":"new","seats":["B-1"]}"#, true),
            write("PATCH", "/v1/events/gala".into(), r#"{"state":"closed"}"#, false),
            write("POST", "/v1/events/gala/holds".into(), r#"{"items":[{"seat":"A-3"}]}"#, true),
            write("POST", "/v1/events/gala/blocks".into(), r#"{"seats":["A-3"]}"#, false),
            write("PATCH", format!("/v1/holds/{hold}"), r#"{"extend_ms":700000}"#, false),
            write("POST", format!("/v1/holds/{hold}/payment"), r#"{"payment_ref":"pay-1"}"#, true),
            write("POST", format!("/v1/holds/{hold}/payment/failed"), r#"{"payment_ref":"pay-1"}"#, true),
            write("POST", format!("/v1/holds/{hold}/confirm"), r#"{"order_ref":"order-1"}"#, false),
            write("POST", format!("/v1/holds/{hold}/revoke"), r#"{"reason":"test"}"#, false),
            write("POST", format!("/v1/bookings/{}/cancel", self.booking), r#"{"reason":"test"}"#, false),
            write("POST", "/v1/locks/new".into(), r#"{"ttl_ms":60000}"#, false),
            write("PATCH", "/v1/locks/job".into(), r#"{"ttl_ms":7200000}"#, true),
        ]
    }

    /// Every write of the API that takes no body, with one all the same.
    pub(crate) fn removals(&self) -> Vec<Write> {
        let paths = [
            format!("/v1/holds/{}", self.hold.id),
            format!("/v1/events/gala/blocks/{}", self.block),
            "/v1/locks/job".to_owned(),
        ];
        let removal = |path| Write { method: "DELETE", path, good: r#"{"x":1}"#, required: false };
        paths.into_iter().map(removal).collect()
    }

    /// The two together.
    pub(crate) fn all_writes(&self) -> Vec<Write> {
        [self.writes(), self.removals()].concat()
    }

    /// The owner's request with this body.
    pub(crate) fn bad(&self, method: &'static str, path: &str, body: impl Into<Vec<u8>>, what: &str) -> Bad {
        let secret = ("hold-secret".to_owned(), self.hold.secret.clone());
        let owner = ("lock-owner".to_owned(), self.lock.owner.clone());
        let headers = vec![secret, owner];
        Bad { what: what.to_owned(), method, path: path.to_owned(), headers, body: body.into() }
    }

    /// The headers that prove who the owner is, for requests made by hand.
    pub(crate) fn proofs(&self) -> String {
        format!("hold-secret: {}\r\nlock-owner: {}", self.hold.secret, self.lock.owner)
    }

    /// Sends it; the test fails unless it is refused with one of `codes`, as a problem document, without effect.
    pub(crate) fn assert_refused(&self, bad: &Bad, codes: &[Code]) -> RawAnswer {
        let headers: Vec<(&str, &str)> =
            bad.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let request = request_bytes(bad.method, &bad.path, &headers, &bad.body);
        self.assert_bytes_refused(&bad.to_string(), &request, codes)
    }

    /// The same for any bytes.
    pub(crate) fn assert_bytes_refused(&self, what: &str, request: &[u8], codes: &[Code]) -> RawAnswer {
        let before = self.state();
        let begun = Instant::now();
        let answer = try_exchange(self.stage.address(), request, Duration::from_secs(10));
        let took = begun.elapsed();
        let Some(answer) = answer else {
            self.complain(format!("{what}: no answer"));
            return RawAnswer { status: 0, headers: Vec::new(), body: Vec::new(), closed: true };
        };
        let shown = String::from_utf8_lossy(&answer.body).into_owned();
        let found = answer.code();
        let expected =
            |code: &Code| code.status() == answer.status && found.as_deref() == Some(code.as_str());
        if !codes.iter().any(expected) {
            self.complain(format!("{what}: {} {shown}, expected {codes:?}", answer.status));
        }
        let content_type = answer.header("content-type").unwrap_or_default();
        if !content_type.starts_with("application/problem+json") {
            self.complain(format!("{what}: content-type {content_type:?}"));
        }
        let secret = shown.contains(&self.hold.secret) || shown.contains(&self.lock.owner);
        if secret && !(200..300).contains(&answer.status) {
            self.complain(format!("{what}: the answer tells the secret"));
        }
        // A machine that stands still for a moment is slow once, and not with the same again.
        if took >= REFUSED_WITHIN {
            let begun = Instant::now();
            try_exchange(self.stage.address(), request, Duration::from_secs(10));
            if begun.elapsed() >= REFUSED_WITHIN {
                self.complain(format!(
                    "{what}: refused after {took:?}, and again after {:?}",
                    begun.elapsed()
                ));
            }
        }
        if self.state() != before {
            self.complain(format!("{what}: the state has changed"));
        }
        answer
    }

    /// Notes what is wrong; the test fails at its end.
    pub(crate) fn complain(&self, complaint: String) {
        self.complaints.lock().unwrap().push(complaint);
    }

    /// The event, its availability and the list of events, byte for byte; the versions in them show every change. And
    /// the locks that are held, with their fences and, by the hour, their ends.
    pub(crate) fn state(&self) -> (String, String) {
        let read = |path: &str| {
            let answer =
                exchange(self.stage.address(), &request_bytes("GET", path, &[], b""), Duration::from_secs(5));
            assert_eq!(answer.status, 200, "GET {path}");
            String::from_utf8_lossy(&answer.body).into_owned()
        };
        let list: leasehold_api::LockList = serde_json::from_str(&read("/v1/locks")).unwrap();
        let lock =
            |lock: &LockView| (lock.name.clone(), lock.fence, lock.remaining_ms.map(|ms| ms / 3_600_001));
        let locks = format!("{:?}", list.locks.iter().map(lock).collect::<Vec<_>>());
        (read("/v1/events/gala"), read("/v1/events/gala/availability") + &read("/v1/events") + &locks)
    }
}

impl Drop for Venue {
    /// The history has what was asked properly: whatever else had an effect is not explained by it.
    fn drop(&mut self) {
        let mut complaints = std::mem::take(&mut *self.complaints.lock().unwrap());
        if !std::thread::panicking() {
            let judged = tokio::task::block_in_place(|| Handle::current().block_on(self.stage.judge()));
            judged.assert_meaningful(3);
            complaints
                .extend(judged.violations.iter().map(|found| format!("{:?}: {}", found.rule, found.message)));
        }
        let report = format!("{} complaints:\n{}", complaints.len(), complaints.join("\n"));
        match (complaints.is_empty(), std::thread::panicking()) {
            (true, _) => {}
            (false, true) => eprintln!("{report}"),
            (false, false) => panic!("{report}"),
        }
    }
}

impl Bad {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl std::fmt::Display for Bad {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(120)]).into_owned();
        write!(formatter, "{} on {} {} with {body}", self.what, self.method, self.path)
    }
}
