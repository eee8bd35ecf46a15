//! The handlers, a file for each kind of thing: read the request, one call, write the answer.

pub(crate) mod availability;
pub(crate) mod blocks;
pub(crate) mod bookings;
pub(crate) mod docs;
mod encoded;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod holds;
mod kept;
pub(crate) mod locks;
pub(crate) mod operator;
pub(crate) mod pages;
pub(crate) mod payments;
pub(crate) mod stream;
pub(crate) mod venues;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use leasehold_api::{HOLD_SECRET, IDEMPOTENCY_REPLAYED};
use leasehold_core::{Command, HoldId};
use leasehold_engine::{Done, HoldSecret, IdempotencyKey, Outcome, Venue};

pub(crate) use self::availability::AvailabilityCache;
pub(crate) use self::encoded::{Encoded, gzip};
pub(crate) use self::kept::Kept;
pub(crate) use self::pages::Pages;
pub(crate) use self::venues::VenueCache;
use crate::app::App;
use crate::body::{self, LargePlace};
use crate::idempotency;
use crate::problem::ApiError;
use crate::query::Query;
use crate::wire;

/// A request that changes something: its body read, its key found.
pub(crate) struct Write {
    pub(crate) body: Bytes,
    pub(crate) key: Option<IdempotencyKey>,
    pub(crate) secret: Option<HoldSecret>,
    _place: Option<LargePlace>,
}

impl Write {
    pub(crate) async fn read(app: &App, request: Request<Body>, bytes_max: usize) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let within = app.config.body_timeout;
        let read = body::read(&parts.headers, body, bytes_max, within, &app.large_bodies).await?;
        let secret = secret(&parts.headers);
        let required = app.config.require_idempotency_key && parts.method != Method::GET;
        let secret_key = app.key_for_keys.clone();
        let key = body::work_on(&read.bytes, move |bytes| {
            idempotency::key(&secret_key, &parts.headers, &parts.method, parts.uri.path(), bytes, required)
        });
        let key = key.await?;
        Ok(Self { body: read.bytes, key, secret, _place: read.place })
    }

    /// Carries the command out.
    pub(crate) async fn execute(
        &self,
        app: &App,
        command: Command,
        venue: Option<&Venue>,
    ) -> Result<Done, ApiError> {
        let request = leasehold_engine::Request::new(command).with_secret(self.secret).with_key(self.key);
        app.engine.execute(request).await.map_err(|error| ApiError::from_engine(error, venue))
    }
}

/// The secret in the request's header. What is no secret proves nothing, like none.
pub(crate) fn secret(headers: &HeaderMap) -> Option<HoldSecret> {
    headers.get(HOLD_SECRET)?.to_str().ok().and_then(HoldSecret::parse)
}

/// The event in the path.
pub(crate) async fn venue(app: &App, event: &str) -> Result<Arc<Venue>, ApiError> {
    app.engine.venue(event).await?.ok_or_else(ApiError::not_found)
}

pub(crate) fn hold_id(text: &str) -> Result<HoldId, ApiError> {
    HoldId::parse(text).ok_or_else(ApiError::not_found)
}

/// The hold in the path, for whoever has its secret. To others it does not exist, and whoever goes on guessing is told to
/// wait, whether it exists or not. Nobody can keep its owner out with wrong secrets.
pub(crate) fn proven_hold(app: &App, text: &str, secret: Option<HoldSecret>) -> Result<HoldId, ApiError> {
    let hold = hold_id(text)?;
    if !app.engine.proves(hold, secret) {
        app.limits.check_guess(hold)?;
        return Err(ApiError::not_found());
    }
    Ok(hold)
}

/// Whether an `Accept-Encoding` takes gzip.
pub(crate) fn accepts_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        parts.next() == Some("gzip")
            && !parts.any(|weight| matches!(weight, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

/// A JSON answer.
pub(crate) fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("wire types have string keys and no failing serializers");
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Not to be kept by anything on the way.
pub(crate) fn private(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Says how old an answer is that shows less than was decided. Not to be kept: nobody can say when it is true again.
pub(crate) fn aged(response: Response, behind: Option<Duration>) -> Response {
    let Some(behind) = behind else { return response };
    let mut response = private(response);
    response.headers_mut().insert(header::AGE, HeaderValue::from(behind.as_secs()));
    response
}

/// A time as it stands in answers.
pub(crate) fn millis(time: Option<Duration>) -> Option<u64> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// The answer to a command, marked when it was given before. Not to be cached: it may have a secret in it.
pub(crate) fn answer(app: &App, done: &Done, created: StatusCode) -> Response {
    let mut response = match &done.outcome {
        Outcome::Event(summary) => json(created, &wire::event_view(&done.venue, summary)),
        Outcome::Hold(hold) => {
            let mut view = wire::hold_view(&done.venue, hold, done.at);
            if created == StatusCode::CREATED {
                view.secret = Some(app.engine.secret_of(hold.id).reveal());
            }
            json(created, &view)
        }
        Outcome::Booking(booking) => json(created, &wire::booking_view(&done.venue, booking)),
        Outcome::Block(block) => json(created, &wire::block_view(&done.venue, block)),
        Outcome::BlockGone => StatusCode::NO_CONTENT.into_response(),
        Outcome::RefundDue(reference) => ApiError::refund_due(reference.as_str()).into_response(),
    };
    if done.replayed {
        response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    private(response)
}

/// Where a page of an event's list begins, and how much is on it.
fn page_asked_for(query: Option<&str>) -> Result<(u64, usize), ApiError> {
    const PAGE_MAX: u64 = 1_000;
    let query = Query::parse(query, &["after", "limit"])?;
    let limit = query.number("limit", 1, PAGE_MAX)?.map_or(100, |limit| limit as usize);
    Ok((query.number("after", 0, u64::MAX)?.unwrap_or(0), limit))
}
