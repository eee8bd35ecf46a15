//! Locks: JSON to the toolkit's words and back.

use std::time::Duration;

use leasehold_api::{AcquireLock, LockView, TtlAdvice};
use leasehold_lock::backend::Order;
use leasehold_lock::{Advice, Guarantee, Label, LeaseView, LockName, TTL_DEFAULT, Ttl, WAIT_DEFAULT};

use crate::locks::{Wanted, millis};
use crate::problem::ApiError;

/// The longest that a request waits.
const WAIT_MS_MAX: u64 = 60_000;

/// What a request asks for.
pub(crate) fn wanted_lock(name: LockName, body: &AcquireLock) -> Result<Wanted, ApiError> {
    let wait = match body.wait_ms {
        None => WAIT_DEFAULT,
        Some(wait_ms @ 0..=WAIT_MS_MAX) => Duration::from_millis(wait_ms),
        Some(_) => return Err(ApiError::invalid(format!("wait_ms is at most {WAIT_MS_MAX}"))),
    };
    let label = body.label.as_deref().map(Label::parse).transpose();
    let label = label.map_err(|bad| ApiError::bad_request(format!("label: {bad}")))?;
    let ttl = ttl(body.ttl_ms.unwrap_or(millis(TTL_DEFAULT)))?;
    Ok(Wanted { name, ttl, wait, label, order: order(body.order.as_deref())? })
}

/// The length of a lease.
pub(crate) fn ttl(ttl_ms: u64) -> Result<Ttl, ApiError> {
    Ttl::new(Duration::from_millis(ttl_ms)).map_err(|bad| ApiError::invalid(format!("ttl_ms: {bad}")))
}

/// Who goes first.
fn order(order: Option<&str>) -> Result<Order, ApiError> {
    match order {
        None | Some("any") => Ok(Order::Any),
        Some("fifo") => Ok(Order::Fifo),
        Some(_) => Err(ApiError::invalid("order is `any` or `fifo`")),
    }
}

/// A lock that somebody has.
pub(crate) fn lock_view(view: &LeaseView, guarantee: Guarantee) -> LockView {
    LockView {
        name: view.name.as_str().to_owned(),
        held: true,
        label: view.label.clone(),
        age_ms: view.age.map(millis),
        remaining_ms: view.remaining.map(millis),
        fence: view.fence.map(|fence| fence.0),
        waiters: view.waiters.unwrap_or(0),
        guarantee: guarantee.as_str().to_owned(),
        advice: None,
    }
}

/// A lock that nobody has.
pub(crate) fn free_lock(name: &LockName, waiters: u32, guarantee: Guarantee) -> LockView {
    LockView {
        name: name.as_str().to_owned(),
        held: false,
        label: None,
        age_ms: None,
        remaining_ms: None,
        fence: None,
        waiters,
        guarantee: guarantee.as_str().to_owned(),
        advice: None,
    }
}

/// How long leases of the name's class should be.
pub(crate) fn ttl_advice(name: &LockName, advice: &Advice) -> TtlAdvice {
    TtlAdvice {
        class: name.class().to_owned(),
        ttl_ms: millis(advice.ttl),
        hold_p99_ms: millis(advice.hold_p99),
        samples: advice.samples,
    }
}
