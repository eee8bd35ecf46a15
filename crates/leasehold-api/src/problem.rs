//! Refusals: RFC 9457 problem documents with a stable `code`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a request was refused, for programs. The codes are part of the API and do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// A seat belongs to someone else at the moment.
    SeatTaken,
    /// Fewer units are left than asked for, or no seats together.
    SoldOut,
    /// The event is closed.
    EventClosed,
    /// The event's id is in use.
    EventExists,
    /// The hold is over.
    HoldExpired,
    /// The hold is in a state that does not allow this: held, being paid for, or sold.
    HoldState,
    /// No such thing, or not yours.
    NotFound,
    /// The hold cannot be extended further.
    ExtendCap,
    /// The hold changed in between.
    VersionMismatch,
    /// The holder has as much as the event allows.
    LimitPerHolder,
    /// A capacity cannot fall below what is sold, held and blocked.
    CapacityInUse,
    /// The payment reference belongs to another hold.
    PaymentRefUsed,
    /// The hold has had as many payments as it may.
    PaymentCap,
    /// As many payments of the event are in progress as it allows at a time.
    PaymentsBusy,
    /// The payment cannot be turned into a sale any more: give the money back.
    RefundDue,
    /// Somebody else has the lock, also after the wait.
    LockHeld,
    /// The lock is not held with this owner token: the lease is over, or never was.
    LockLost,
    /// The store of the locks answered no, and will again.
    LockStoreRefused,
    /// The server wants an idempotency key.
    IdempotencyMissing,
    /// The idempotency key is not one.
    IdempotencyInvalid,
    /// The first request with this key is still being worked on.
    IdempotencyInFlight,
    /// This key was used for another request.
    IdempotencyMismatch,
    /// The request is not what the API reads: bad JSON, unknown or doubled field, bad identifier.
    BadRequest,
    /// The request reads well and makes no sense: wrong type, out of range, contradicting itself.
    Invalid,
    /// The method is not one of this path.
    MethodNotAllowed,
    /// The body took too long to arrive.
    Timeout,
    /// The body is too large.
    TooLarge,
    /// The body is not plain JSON in UTF-8.
    UnsupportedMediaType,
    /// Too many requests from this address or for this event.
    QuotaExceeded,
    /// The server sheds load.
    Overloaded,
    /// The request may have taken effect, or not: ask again with the same idempotency key.
    OutcomeUnknown,
}

impl Code {
    /// All codes, for documentation and tests.
    pub const ALL: [Code; 31] = [
        Code::SeatTaken,
        Code::SoldOut,
        Code::EventClosed,
        Code::EventExists,
        Code::HoldExpired,
        Code::HoldState,
        Code::NotFound,
        Code::ExtendCap,
        Code::VersionMismatch,
        Code::LimitPerHolder,
        Code::CapacityInUse,
        Code::PaymentRefUsed,
        Code::PaymentCap,
        Code::PaymentsBusy,
        Code::RefundDue,
        Code::LockHeld,
        Code::LockLost,
        Code::LockStoreRefused,
        Code::IdempotencyMissing,
        Code::IdempotencyInvalid,
        Code::IdempotencyInFlight,
        Code::IdempotencyMismatch,
        Code::BadRequest,
        Code::Invalid,
        Code::MethodNotAllowed,
        Code::Timeout,
        Code::TooLarge,
        Code::UnsupportedMediaType,
        Code::QuotaExceeded,
        Code::Overloaded,
        Code::OutcomeUnknown,
    ];

    /// The code as it stands in the document.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::SeatTaken => "seat-taken",
            Code::SoldOut => "sold-out",
            Code::EventClosed => "event-closed",
            Code::EventExists => "event-exists",
            Code::HoldExpired => "hold-expired",
            Code::HoldState => "hold-state",
            Code::NotFound => "not-found",
            Code::ExtendCap => "extend-cap",
            Code::VersionMismatch => "version-mismatch",
            Code::LimitPerHolder => "limit-per-holder",
            Code::CapacityInUse => "capacity-in-use",
            Code::PaymentRefUsed => "payment-ref-used",
            Code::PaymentCap => "payment-cap",
            Code::PaymentsBusy => "payments-busy",
            Code::RefundDue => "refund-due",
            Code::LockHeld => "lock-held",
            Code::LockLost => "lock-lost",
            Code::LockStoreRefused => "lock-store-refused",
            Code::IdempotencyMissing => "idempotency-missing",
            Code::IdempotencyInvalid => "idempotency-invalid",
            Code::IdempotencyInFlight => "idempotency-in-flight",
            Code::IdempotencyMismatch => "idempotency-mismatch",
            Code::BadRequest => "bad-request",
            Code::Invalid => "invalid",
            Code::MethodNotAllowed => "method-not-allowed",
            Code::Timeout => "timeout",
            Code::TooLarge => "too-large",
            Code::UnsupportedMediaType => "unsupported-media-type",
            Code::QuotaExceeded => "quota-exceeded",
            Code::Overloaded => "overloaded",
            Code::OutcomeUnknown => "outcome-unknown",
        }
    }

    /// The HTTP status that goes with the code.
    pub fn status(self) -> u16 {
        match self {
            Code::BadRequest | Code::IdempotencyMissing | Code::IdempotencyInvalid => 400,
            Code::NotFound => 404,
            Code::MethodNotAllowed => 405,
            Code::Timeout => 408,
            Code::SeatTaken
            | Code::SoldOut
            | Code::EventClosed
            | Code::EventExists
            | Code::HoldState
            | Code::ExtendCap
            | Code::CapacityInUse
            | Code::PaymentRefUsed
            | Code::PaymentCap
            | Code::RefundDue
            | Code::LockHeld
            | Code::IdempotencyInFlight => 409,
            Code::HoldExpired | Code::LockLost => 410,
            Code::VersionMismatch => 412,
            Code::TooLarge => 413,
            Code::UnsupportedMediaType => 415,
            Code::Invalid | Code::LimitPerHolder | Code::IdempotencyMismatch => 422,
            Code::QuotaExceeded | Code::PaymentsBusy => 429,
            Code::Overloaded | Code::OutcomeUnknown | Code::LockStoreRefused => 503,
        }
    }

    /// The URI that names the code's kind of problem.
    pub fn uri(self) -> &'static str {
        match self {
            Code::SeatTaken => "urn:leasehold:problem:seat-taken",
            Code::SoldOut => "urn:leasehold:problem:sold-out",
            Code::EventClosed => "urn:leasehold:problem:event-closed",
            Code::EventExists => "urn:leasehold:problem:event-exists",
            Code::HoldExpired => "urn:leasehold:problem:hold-expired",
            Code::HoldState => "urn:leasehold:problem:hold-state",
            Code::NotFound => "urn:leasehold:problem:not-found",
            Code::ExtendCap => "urn:leasehold:problem:extend-cap",
            Code::VersionMismatch => "urn:leasehold:problem:version-mismatch",
            Code::LimitPerHolder => "urn:leasehold:problem:limit-per-holder",
            Code::CapacityInUse => "urn:leasehold:problem:capacity-in-use",
            Code::PaymentRefUsed => "urn:leasehold:problem:payment-ref-used",
            Code::PaymentCap => "urn:leasehold:problem:payment-cap",
            Code::PaymentsBusy => "urn:leasehold:problem:payments-busy",
            Code::RefundDue => "urn:leasehold:problem:refund-due",
            Code::LockHeld => "urn:leasehold:problem:lock-held",
            Code::LockLost => "urn:leasehold:problem:lock-lost",
            Code::LockStoreRefused => "urn:leasehold:problem:lock-store-refused",
            Code::IdempotencyMissing => "urn:leasehold:problem:idempotency-missing",
            Code::IdempotencyInvalid => "urn:leasehold:problem:idempotency-invalid",
            Code::IdempotencyInFlight => "urn:leasehold:problem:idempotency-in-flight",
            Code::IdempotencyMismatch => "urn:leasehold:problem:idempotency-mismatch",
            Code::BadRequest => "urn:leasehold:problem:bad-request",
            Code::Invalid => "urn:leasehold:problem:invalid",
            Code::MethodNotAllowed => "urn:leasehold:problem:method-not-allowed",
            Code::Timeout => "urn:leasehold:problem:timeout",
            Code::TooLarge => "urn:leasehold:problem:too-large",
            Code::UnsupportedMediaType => "urn:leasehold:problem:unsupported-media-type",
            Code::QuotaExceeded => "urn:leasehold:problem:quota-exceeded",
            Code::Overloaded => "urn:leasehold:problem:overloaded",
            Code::OutcomeUnknown => "urn:leasehold:problem:outcome-unknown",
        }
    }

    /// A short sentence for people, the same for every occurrence of the code.
    pub fn title(self) -> &'static str {
        match self {
            Code::SeatTaken => "the seat is taken",
            Code::SoldOut => "not enough is left",
            Code::EventClosed => "the event is closed",
            Code::EventExists => "the event exists already",
            Code::HoldExpired => "the hold is over",
            Code::HoldState => "the hold is in another state",
            Code::NotFound => "no such thing",
            Code::ExtendCap => "the hold cannot be extended further",
            Code::VersionMismatch => "the hold has changed",
            Code::LimitPerHolder => "the holder has as much as is allowed",
            Code::CapacityInUse => "the capacity is in use",
            Code::PaymentRefUsed => "the payment belongs to another hold",
            Code::PaymentCap => "the hold has had as many payments as it may",
            Code::PaymentsBusy => "too many payments are in progress",
            Code::RefundDue => "the payment must be given back",
            Code::LockHeld => "somebody else has the lock",
            Code::LockLost => "the lock is not held with this owner",
            Code::LockStoreRefused => "the store of the locks refuses",
            Code::IdempotencyMissing => "an idempotency key is required",
            Code::IdempotencyInvalid => "the idempotency key is not valid",
            Code::IdempotencyInFlight => "the first request with this key is not finished",
            Code::IdempotencyMismatch => "the key was used for another request",
            Code::BadRequest => "the request cannot be read",
            Code::Invalid => "the request makes no sense",
            Code::MethodNotAllowed => "the method is not allowed here",
            Code::Timeout => "the request took too long to arrive",
            Code::TooLarge => "the request is too large",
            Code::UnsupportedMediaType => "the body must be application/json in UTF-8",
            Code::QuotaExceeded => "too many requests",
            Code::Overloaded => "the server is overloaded",
            Code::OutcomeUnknown => "the outcome is unknown",
        }
    }
}

/// An RFC 9457 problem document.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A URI that names the kind of problem: `urn:leasehold:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// The kind of problem in words.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    pub status: u16,
    /// The stable code to match on.
    pub code: Cow<'static, str>,
    /// What happened this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The seats that were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seats: Option<Vec<String>>,
    /// The pool that ran short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Units or seats still free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<u32>,
    /// Units or seats in the hands of buyers who have not paid: they may come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returning: Option<u32>,
    /// The payment to give back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment_ref: Option<String>,
    /// When the lock's present lease ends unless it is renewed; absent when it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// How many stood in line before this request, where the lock was asked for in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u32>,
}

impl Problem {
    /// A document for this code with nothing but the fixed parts.
    pub fn new(code: Code) -> Self {
        Self {
            kind: code.uri().into(),
            title: code.title().into(),
            status: code.status(),
            code: code.as_str().into(),
            ..Self::default()
        }
    }
}
