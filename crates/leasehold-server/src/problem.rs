//! Refusals: the one place where they become status codes and problem documents.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use leasehold_api::{Code, Problem};
use leasehold_core::{BadName, BadPolicy, LayoutError, Refusal};
use leasehold_engine::{EngineError, Venue};
use leasehold_lock::{Busy, LockError, StoreError};

use crate::limits::Exceeded;

/// A refusal on its way to the client.
#[derive(Debug)]
pub(crate) struct ApiError {
    code: Code,
    /// Boxed, because most requests have none.
    problem: Box<Problem>,
    retry_after_s: Option<u64>,
    exceeded: Option<Exceeded>,
    close: bool,
}

impl ApiError {
    pub(crate) fn new(code: Code) -> Self {
        let retry_after_s = match code {
            Code::Overloaded | Code::OutcomeUnknown | Code::IdempotencyInFlight | Code::PaymentsBusy => {
                Some(1)
            }
            // Somebody has to look at the store first.
            Code::LockStoreRefused => Some(10),
            _ => None,
        };
        Self { code, problem: Box::new(Problem::new(code)), retry_after_s, exceeded: None, close: false }
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.problem.detail = Some(detail.into());
        self
    }

    /// The connection is not worth keeping: its body was not read to the end.
    pub(crate) fn close(mut self) -> Self {
        self.close = true;
        self
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(Code::BadRequest).detail(detail)
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Code::Invalid).detail(detail)
    }

    pub(crate) fn not_found() -> Self {
        Self::new(Code::NotFound)
    }

    /// A field that is no name, reference or text.
    pub(crate) fn bad_name(field: &str, bad: BadName) -> Self {
        Self::bad_request(format!("{field} {bad}"))
    }

    /// An engine's error about this venue, whose seats and pools have names.
    pub(crate) fn from_engine(error: EngineError, venue: Option<&Venue>) -> Self {
        match error {
            EngineError::Refused(refusal) => Self::from_refusal(refusal, venue),
            EngineError::InFlight => Self::new(Code::IdempotencyInFlight),
            EngineError::KeyMismatch => Self::new(Code::IdempotencyMismatch),
            EngineError::Overloaded | EngineError::Unavailable | EngineError::Closed => {
                Self::new(Code::Overloaded)
            }
            EngineError::Unknown => Self::new(Code::OutcomeUnknown),
            EngineError::Backup(reason) => Self::invalid(reason),
        }
    }

    fn from_refusal(refusal: Refusal, venue: Option<&Venue>) -> Self {
        let code = match &refusal {
            Refusal::NotFound => return Self::not_found(),
            Refusal::SeatsTaken(_) => Code::SeatTaken,
            Refusal::PoolShort { .. } | Refusal::NotTogether { .. } => Code::SoldOut,
            Refusal::NotYet => Code::Overloaded,
            Refusal::EventClosed => Code::EventClosed,
            Refusal::EventExists => Code::EventExists,
            Refusal::HoldForgotten(_) => Code::RefundDue,
            Refusal::HoldOver(_) => Code::HoldExpired,
            Refusal::HoldIs(_) | Refusal::SaleCancelled(_) => Code::HoldState,
            Refusal::ExtendCap => Code::ExtendCap,
            Refusal::VersionMismatch(_) => Code::VersionMismatch,
            Refusal::HolderLimit { .. } => Code::LimitPerHolder,
            Refusal::CapacityInUse { .. } => Code::CapacityInUse,
            Refusal::PaymentRefUsed => Code::PaymentRefUsed,
            Refusal::PaymentCap => Code::PaymentCap,
            Refusal::PaymentsBusy => Code::PaymentsBusy,
            Refusal::Invalid(_) | Refusal::BadPolicy(_) => Code::Invalid,
        };
        let mut error = Self::new(code);
        let pool_id = |pool: leasehold_core::PoolNo| {
            venue.and_then(|venue| venue.pools.get(pool.0 as usize)).map(ToString::to_string)
        };
        match refusal {
            Refusal::SeatsTaken(seats) => {
                let name = |seat| venue.map(|venue| venue.layout.seat_name(seat).to_owned());
                error.problem.seats = Some(seats.into_iter().filter_map(name).collect());
            }
            Refusal::PoolShort { pool, available, returning } => {
                error.problem.pool = pool_id(pool);
                error.problem.available = Some(available);
                error.problem.returning = Some(returning);
            }
            Refusal::NotTogether { available, returning } => {
                error.problem.available = Some(available);
                error.problem.returning = Some(returning);
            }
            Refusal::CapacityInUse { pool, in_use } => {
                error.problem.pool = pool_id(pool);
                error.problem.detail = Some(format!("{in_use} units are in use"));
            }
            Refusal::HoldForgotten(reference) => {
                error.problem.payment_ref = Some(reference.as_str().to_owned());
                error.problem.detail =
                    Some("the hold is not known any more, and nothing was sold".to_owned());
            }
            Refusal::HoldOver(state) | Refusal::HoldIs(state) => {
                error.problem.detail = Some(format!("the hold is {}", state.as_str()));
            }
            Refusal::SaleCancelled(booking) => {
                error.problem.detail = Some(format!("the hold was sold as {booking}, which was cancelled"));
            }
            Refusal::HolderLimit { has, limit } => {
                error.problem.detail = Some(format!("the holder has {has} of at most {limit}"));
            }
            Refusal::VersionMismatch(version) => {
                error.problem.detail = Some(format!("the hold has version {version}"));
            }
            Refusal::Invalid(why) => error.problem.detail = Some(why.to_owned()),
            Refusal::BadPolicy(why) => error.problem.detail = Some(why.to_string()),
            Refusal::NotFound
            | Refusal::NotYet
            | Refusal::EventClosed
            | Refusal::EventExists
            | Refusal::ExtendCap
            | Refusal::PaymentRefUsed
            | Refusal::PaymentCap
            | Refusal::PaymentsBusy => {}
        }
        error
    }

    /// Somebody else has the lock.
    pub(crate) fn lock_held(busy: &Busy) -> Self {
        let mut error = Self::new(Code::LockHeld);
        // Most locks are given back before their leases end, so nobody is sent away for long.
        error.retry_after_s = busy.remaining.map(|remaining| remaining.as_secs().clamp(0, 59) + 1);
        error.problem.remaining_ms = busy.remaining.map(crate::locks::millis);
        error.problem.ahead = busy.ahead;
        error
    }

    /// What a lock call failed with. What the store said is for the log.
    pub(crate) fn from_lock(error: &LockError) -> Self {
        let shown = error as &dyn std::error::Error;
        match error {
            LockError::Lost { .. } => Self::new(Code::LockLost),
            LockError::Invalid(why) => Self::invalid(why.to_string()),
            LockError::Refused { .. } => {
                tracing::error!(error = shown, "the store of the locks refuses");
                Self::new(Code::LockStoreRefused)
            }
            // Without an answer, or something that a newer version of the toolkit knows.
            _ => {
                tracing::warn!(error = shown, "the store of the locks did not answer");
                Self::new(Code::OutcomeUnknown)
            }
        }
    }

    /// The same for a listing.
    pub(crate) fn from_lock_store(error: &StoreError) -> Self {
        let shown = error as &dyn std::error::Error;
        match error {
            StoreError::Refused(_) => {
                tracing::error!(error = shown, "the store of the locks refuses a listing");
                Self::new(Code::LockStoreRefused)
            }
            StoreError::Unknown(_) => {
                tracing::warn!(error = shown, "the store of the locks did not answer a listing");
                Self::new(Code::OutcomeUnknown)
            }
        }
    }

    /// A payment that must be given back.
    pub(crate) fn refund_due(reference: &str) -> Self {
        let mut error = Self::new(Code::RefundDue);
        error.problem.payment_ref = Some(reference.to_owned());
        error
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        Self::from_engine(error, None)
    }
}

impl From<Exceeded> for ApiError {
    fn from(exceeded: Exceeded) -> Self {
        let mut error = Self::new(Code::QuotaExceeded);
        error.retry_after_s = Some(exceeded.wait.as_secs() + 1);
        error.exceeded = Some(exceeded);
        error
    }
}

impl From<BadPolicy> for ApiError {
    fn from(bad: BadPolicy) -> Self {
        Self::invalid(bad.to_string())
    }
}

impl From<LayoutError> for ApiError {
    fn from(bad: LayoutError) -> Self {
        match bad {
            LayoutError::Name(bad) => Self::bad_name("a seat's id", bad),
            other => Self::invalid(other.to_string()),
        }
    }
}

/// The code of an answer that was an error of the server's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GivenCode(pub(crate) Code);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).expect("codes have valid statuses");
        let body = serde_json::to_vec(&*self.problem).expect("a problem has string keys");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(Exceeded { name, rate, wait }) = self.exceeded {
            let policy = format!("\"{name}\";q={};w=1", rate.per_second);
            let state = format!("\"{name}\";r=0;t={}", wait.as_secs() + 1);
            for (header, value) in [("ratelimit-policy", policy), ("ratelimit", state)] {
                headers.insert(header, value.try_into().expect("digits and a fixed name are a header value"));
            }
        }
        if status.is_server_error() {
            response.extensions_mut().insert(GivenCode(self.code));
        }
        let headers = response.headers_mut();
        if self.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
