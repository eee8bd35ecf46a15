//! What was asked, what was answered, and when: the only thing the checker believes.
//!
//! An operation is entered when it begins, as one without an answer, and completed when the answer comes. A
//! client that dies in between therefore leaves exactly what is known: the request may have taken effect.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use serde_json::Value;

/// Everything all clients of one test did, shared between them.
#[derive(Debug, Clone)]
pub struct History {
    inner: Arc<Mutex<Inner>>,
    started: Instant,
    started_wall: SystemTime,
}

#[derive(Debug, Default)]
struct Inner {
    operations: Vec<Operation>,
    in_flight: usize,
    final_from: Option<usize>,
}

/// One request and what became of it.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Which client sent it.
    pub client: usize,
    /// When it was begun, since the history's start.
    pub started: Duration,
    /// When its answer came; `None` while, and for ever if, none came.
    pub ended: Option<Duration>,
    /// What was asked.
    pub request: SentRequest,
    /// What was answered.
    pub outcome: Outcome,
}

/// A request as it was sent.
#[derive(Debug, Clone, Default)]
pub struct SentRequest {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The headers we chose, `Hold-Secret` and `Idempotency-Key` among them; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The JSON body.
    pub body: Bytes,
}

/// What became of a request.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The server answered.
    Answer(Answer),
    /// The request was sent, or part of it, and no answer came: it may have taken effect, now or later.
    NoAnswer,
    /// The server could not be reached: the request had no effect.
    NotSent,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// An operation that has begun; dropping it leaves it without an answer.
#[derive(Debug)]
pub(crate) struct Begun {
    history: History,
    index: usize,
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}

impl History {
    /// An empty history that starts now.
    pub fn new() -> Self {
        let inner = Arc::new(Mutex::new(Inner::default()));
        Self { inner, started: Instant::now(), started_wall: SystemTime::now() }
    }

    /// A hand-made history, for tests of the checker: what stands at `final_from` and after it is the read-back.
    #[cfg(test)]
    pub(crate) fn made(
        started_wall: SystemTime,
        operations: Vec<Operation>,
        final_from: Option<usize>,
    ) -> Self {
        let inner = Inner { operations, in_flight: 0, final_from };
        Self { inner: Arc::new(Mutex::new(inner)), started: Instant::now(), started_wall }
    }

    /// Everything so far.
    pub fn operations(&self) -> Vec<Operation> {
        self.lock().operations.clone()
    }

    /// How many operations there are so far.
    pub fn len(&self) -> usize {
        self.lock().operations.len()
    }

    /// True when nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of the operations from index `from` on are such as `wanted`.
    pub fn count_since(&self, from: usize, wanted: impl Fn(&Operation) -> bool) -> usize {
        let inner = self.lock();
        inner.operations.iter().skip(from).filter(|operation| wanted(operation)).count()
    }

    /// How many requests are being waited for at this moment.
    pub fn in_flight(&self) -> usize {
        self.lock().in_flight
    }

    /// How many requests nobody waits for any more although no answer came.
    pub fn given_up(&self) -> usize {
        let inner = self.lock();
        let without =
            inner.operations.iter().filter(|operation| matches!(operation.outcome, Outcome::NoAnswer));
        without.count().saturating_sub(inner.in_flight)
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The wall clock at the start, to compare with the server's timestamps on the same machine.
    pub fn started_wall(&self) -> SystemTime {
        self.started_wall
    }

    /// Marks the end of the work: what is read from here on is the final state.
    pub fn begin_final_state(&self) {
        let mut inner = self.lock();
        inner.final_from = Some(inner.operations.len());
    }

    /// The index of the first operation of the read-back.
    pub fn final_from(&self) -> Option<usize> {
        self.lock().final_from
    }

    pub(crate) fn begin(&self, client: usize, request: SentRequest) -> Begun {
        let started = self.now();
        let mut inner = self.lock();
        inner.in_flight += 1;
        inner.operations.push(Operation {
            client,
            started,
            ended: None,
            request,
            outcome: Outcome::NoAnswer,
        });
        Begun { history: self.clone(), index: inner.operations.len() - 1 }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while holding it cannot leave a half-written operation.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Begun {
    pub(crate) fn finish(self, outcome: Outcome) {
        let ended = self.history.now();
        let mut inner = self.history.lock();
        let operation = &mut inner.operations[self.index];
        if matches!(outcome, Outcome::Answer(_) | Outcome::NotSent) {
            operation.ended = Some(ended);
        }
        operation.outcome = outcome;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.history.lock().in_flight -= 1;
    }
}

impl Operation {
    /// The answer, if there is one.
    pub fn answer(&self) -> Option<&Answer> {
        match &self.outcome {
            Outcome::Answer(answer) => Some(answer),
            Outcome::NoAnswer | Outcome::NotSent => None,
        }
    }

    /// True when the server said that it did what was asked.
    pub fn acknowledged(&self) -> bool {
        self.answer().is_some_and(Answer::is_success)
    }

    /// What its repetitions have in common with it: path and idempotency key, or without a key its own number.
    pub(crate) fn key_or(&self, index: usize) -> String {
        let key = self.request.header(leasehold_api::IDEMPOTENCY_KEY);
        key.map_or_else(|| format!("#{index}"), |key| format!("{} {key}", self.request.path))
    }

    /// True unless it is certain that the request changed nothing.
    pub fn may_have_taken_effect(&self) -> bool {
        match &self.outcome {
            Outcome::Answer(answer) => answer.is_success() || answer.is_unknown(),
            Outcome::NoAnswer => true,
            Outcome::NotSent => false,
        }
    }

    /// When its effect was there for certain; `None` as long as it may still come.
    pub(crate) fn effect_known_at(&self) -> Option<Duration> {
        self.ended.filter(|_| self.acknowledged())
    }
}

impl SentRequest {
    /// A header's value by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

impl Outcome {
    /// The answer; panics with `what` when there is none.
    pub fn answered(self, what: &str) -> Answer {
        match self {
            Outcome::Answer(answer) => answer,
            Outcome::NoAnswer => panic!("{what}: no answer came"),
            Outcome::NotSent => panic!("{what}: the server could not be reached"),
        }
    }
}

impl Answer {
    /// True for 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// True for 5xx, except where the server sheds load before it begins.
    pub fn is_unknown(&self) -> bool {
        self.status >= 500 && self.code().as_deref() != Some(leasehold_api::Code::Overloaded.as_str())
    }

    /// The body as JSON, `null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The body as a wire type.
    pub fn view<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The `code` of a problem document.
    pub fn code(&self) -> Option<String> {
        self.view::<leasehold_api::Problem>().map(|problem| problem.code.into_owned())
    }

    /// A header's value by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}
