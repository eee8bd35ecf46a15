//! `/v1/locks`: names leased to one owner at a time.

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use leasehold_api::{
    AcquireLock, Code, IDEMPOTENCY_REPLAYED, LOCK_OWNER, LockGrant, LockList, LockRelease, LockRenewal,
    LockView, Problem, RenewLock,
};
use leasehold_engine::IdempotencyKey;
use leasehold_lock::backend::{ListQuery, Order};
use leasehold_lock::{LOCK_NAME_BYTES_MAX, LockName, Owner};

use super::json;
use crate::app::App;
use crate::body::{BODY_BYTES_MAX, parse, parse_optional, read as read_body};
use crate::idempotency;
use crate::locks::Given;
use crate::percent;
use crate::problem::ApiError;
use crate::query::Query;
use crate::service::Waited;
use crate::wire;

/// What stands before a lock's name. Only here may a path have escapes.
pub(crate) const LOCK_PATH: &str = "/v1/locks/";
/// Locks on one page.
const PAGE_MAX: usize = 1_000;

/// A request that changes a lock.
struct LockWrite {
    name: LockName,
    owner: Option<Owner>,
    body: Bytes,
    key: Option<IdempotencyKey>,
}

/// Leases a name, and waits for it while somebody else has it.
#[utoipa::path(post, path = "/v1/locks/{name}", request_body = AcquireLock, tag = "locks",
    params(("name" = String, Path)), responses(
    (status = 201, body = LockGrant), (status = 409, description = "lock-held", body = Problem),
    (status = 503, description = "overloaded, outcome-unknown, lock-store-refused", body = Problem)))]
pub(crate) async fn acquire(State(app): State<App>, request: Request<Body>) -> Response {
    let acquiring = async {
        let write = LockWrite::read(&app, request).await?;
        let body: AcquireLock = parse_optional(&write.body)?;
        let wanted = wire::wanted_lock(write.name, &body)?;
        if wanted.order == Order::Fifo && !app.locks.keeps_order() {
            return Err(ApiError::invalid("this server's store of locks keeps no queue: order is `any`"));
        }
        tokio::select! {
            granted = app.locks.acquire(wanted, write.key) => granted,
            // Whoever waits is sent elsewhere; what it may have taken is given back.
            () = app.stopping.cancelled() => Err(ApiError::new(Code::Overloaded)),
        }
    };
    let mut response = match acquiring.await {
        Ok(given) => answer(StatusCode::CREATED, &given),
        Err(refusal) => refusal.into_response(),
    };
    response.extensions_mut().insert(Waited);
    response
}

/// Lengthens a lease.
#[utoipa::path(patch, path = "/v1/locks/{name}", request_body = RenewLock, tag = "locks",
    params(("name" = String, Path), ("Lock-Owner" = String, Header)), responses(
    (status = 200, body = LockRenewal), (status = 410, description = "lock-lost", body = Problem),
    (status = 503, description = "outcome-unknown, lock-store-refused", body = Problem)))]
pub(crate) async fn renew(State(app): State<App>, request: Request<Body>) -> Result<Response, ApiError> {
    let write = LockWrite::read(&app, request).await?;
    let body: RenewLock = parse(&write.body)?;
    let ttl = wire::ttl(body.ttl_ms)?;
    let renewal = app.locks.renew(&write.name, write.owner, ttl).await?;
    Ok(json(StatusCode::OK, &renewal))
}

/// Gives a lock back.
#[utoipa::path(delete, path = "/v1/locks/{name}", tag = "locks",
    params(("name" = String, Path), ("Lock-Owner" = String, Header)), responses(
    (status = 200, body = LockRelease), (status = 410, description = "lock-lost", body = Problem),
    (status = 503, description = "outcome-unknown, lock-store-refused", body = Problem)))]
pub(crate) async fn release(State(app): State<App>, request: Request<Body>) -> Result<Response, ApiError> {
    let write = LockWrite::read(&app, request).await?;
    if !write.body.is_empty() {
        return Err(ApiError::bad_request("a release has no body"));
    }
    let given = app.locks.release(&write.name, write.owner, write.key).await?;
    Ok(answer(StatusCode::OK, &given))
}

/// Who has a lock, for how long, and how long its leases should be.
#[utoipa::path(get, path = "/v1/locks/{name}", tag = "locks", params(("name" = String, Path)),
    responses((status = 200, body = LockView),
    (status = 503, description = "outcome-unknown, lock-store-refused", body = Problem)))]
pub(crate) async fn read(State(app): State<App>, uri: Uri) -> Result<Response, ApiError> {
    let name = lock_name(&uri)?;
    let (locks, guarantee) = (&app.locks, app.locks.guarantee());
    let mut view = match locks.inspect(&name).await? {
        Some(view) => wire::lock_view(&view, guarantee),
        None => wire::free_lock(&name, locks.waiters(&name), guarantee),
    };
    view.advice = locks.advice(&name).map(|advice| wire::ttl_advice(&name, &advice));
    Ok(json(StatusCode::OK, &view))
}

/// Lists the locks that are held.
#[utoipa::path(get, path = "/v1/locks", tag = "locks", params(
    ("prefix" = Option<String>, Query, description = "how the names begin"),
    ("cursor" = Option<String>, Query, description = "`next` of the page before"),
    ("limit" = Option<usize>, Query, description = "1 to 1000")),
    responses((status = 200, body = LockList),
    (status = 503, description = "outcome-unknown, lock-store-refused", body = Problem)))]
pub(crate) async fn list(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, ApiError> {
    let query = Query::parse(query.as_deref(), &["prefix", "cursor", "limit"])?;
    let limit = query.number("limit", 1, PAGE_MAX as u64)?.map_or(100, |limit| limit as usize);
    let prefix = query.decoded("prefix")?.unwrap_or_default();
    if prefix.len() > LOCK_NAME_BYTES_MAX || prefix.chars().any(char::is_control) {
        return Err(ApiError::invalid("no name begins with this prefix"));
    }
    let cursor = query.text("cursor").map(|text| open_cursor(&app, text)).transpose()?;
    let page = app.locks.list(&ListQuery { prefix, cursor, limit }).await?;
    let guarantee = app.locks.guarantee();
    let locks = page.leases.iter().map(|view| wire::lock_view(view, guarantee)).collect();
    let next = page.cursor.map(|cursor| seal_cursor(&app, &cursor));
    Ok(json(StatusCode::OK, &LockList { locks, next }))
}

impl LockWrite {
    async fn read(app: &App, request: Request<Body>) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let name = lock_name(&parts.uri)?;
        let (within, large) = (app.config.body_timeout, &app.large_bodies);
        let body = read_body(&parts.headers, body, BODY_BYTES_MAX, within, large).await?.bytes;
        let owner = owner(&parts.headers);
        // The name in one spelling and, of a lock that is held, whose it is: both belong to what the key is for.
        let owner_of_it = owner.as_ref().filter(|_| parts.method != Method::POST);
        let token = owner_of_it.map_or("", Owner::as_str);
        let route = format!("{LOCK_PATH}{name}\n{token}");
        let required = app.config.require_idempotency_key;
        let key =
            idempotency::key(&app.key_for_keys, &parts.headers, &parts.method, &route, &body, required)?;
        Ok(Self { name, owner, body, key })
    }
}

/// The name in the path.
fn lock_name(uri: &Uri) -> Result<LockName, ApiError> {
    let escaped = uri.path().strip_prefix(LOCK_PATH).unwrap_or_default();
    let name = percent::decode(escaped).ok_or_else(|| ApiError::bad_request("the name has a bad escape"))?;
    LockName::parse(&name).map_err(|bad| ApiError::bad_request(bad.to_string()))
}

/// The token in the request's header. What is no token proves nothing, like none.
fn owner(headers: &HeaderMap) -> Option<Owner> {
    let mut values = headers.get_all(LOCK_OWNER).iter();
    let owner = values.next()?.to_str().ok().and_then(|text| Owner::parse(text).ok());
    owner.filter(|_| values.next().is_none())
}

/// An answer that may have an owner token in it, so it is not to be cached.
fn answer<T: serde::Serialize>(status: StatusCode, given: &Given<T>) -> Response {
    let mut response = json(status, &given.answer);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if given.replayed {
        headers.insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// A store's cursor in letters that need no escapes, marked so that a forged one is recognised.
fn seal_cursor(app: &App, cursor: &str) -> String {
    let digits: String = cursor.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{:016x}{digits}", app.locks.mark(cursor))
}

fn open_cursor(app: &App, text: &str) -> Result<String, ApiError> {
    let opened = || {
        let (mark, digits) = text.split_at_checked(16)?;
        let escaped: String =
            digits.as_bytes().chunks(2).map(|pair| format!("%{}", String::from_utf8_lossy(pair))).collect();
        let cursor = percent::decode(&escaped)?;
        (format!("{:016x}", app.locks.mark(&cursor)) == mark).then_some(cursor)
    };
    opened().ok_or_else(|| ApiError::invalid("cursor is `next` of the page before"))
}
