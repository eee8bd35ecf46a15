//! `/v1/holds`: seats and units kept for a buyer who is still paying.

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use http::{HeaderMap, Request, StatusCode};
use leasehold_api::{CreateHold, HoldList, HoldView, PatchHold, Problem, RevokeHold};
use leasehold_core::{Command, Refusal};
use leasehold_engine::{EngineError, Outcome, Venue};

use super::{Write, answer, hold_id, json, page_asked_for, private, proven_hold, secret, venue};
use crate::app::App;
use crate::body::{BODY_BYTES_MAX, parse, parse_optional};
use crate::problem::ApiError;
use crate::wire;

/// Holds all of the items, or none of them.
#[utoipa::path(post, path = "/v1/events/{event}/holds", request_body = CreateHold, tag = "holds",
    params(("event" = String, Path)), responses(
    (status = 201, body = HoldView), (status = 409, description = "seat-taken, sold-out, event-closed", body = Problem),
    (status = 422, description = "limit-per-holder, invalid", body = Problem),
    (status = 429, description = "quota-exceeded", body = Problem)))]
pub(crate) async fn create(State(app): State<App>, request: Request<Body>) -> Result<Response, ApiError> {
    // The busiest route takes its parameter from the path itself.
    let path = request.uri().clone();
    let write = Write::read(&app, request, BODY_BYTES_MAX).await?;
    let body: CreateHold = parse(&write.body)?;
    let venue = venue(&app, path.path().split('/').nth(3).unwrap_or_default()).await?;
    app.limits.check_event(venue.number)?;
    let items = wire::wanted_items(&venue, &body)?;
    // A request with a key may be a repetition, whose own hold is in its way: the engine looks at that first.
    if write.key.is_none()
        && let Some(refusal) = app.engine.gate(&venue, &items)
    {
        return Err(ApiError::from_engine(refusal.into(), Some(&venue)));
    }
    let command = wire::create_hold(&venue, &body, items)?;
    let done = write.execute(&app, command, Some(&venue)).await?;
    Ok(answer(&app, &done, StatusCode::CREATED))
}

/// Lists an event's live holds, for operators.
#[utoipa::path(get, path = "/v1/events/{event}/holds", tag = "operating", params(("event" = String, Path),
    ("after" = Option<u64>, Query, description = "`next` of the page before"),
    ("limit" = Option<usize>, Query, description = "1 to 1000")), responses((status = 200, body = HoldList)))]
pub(crate) async fn list(
    State(app): State<App>,
    Path(event): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let (after, limit) = page_asked_for(query.as_deref())?;
    let venue = venue(&app, &event).await?;
    let page = app.engine.holds(&venue, after, limit).await?;
    let now = app.engine.now();
    let next = page.next().map(|place| place.to_string());
    let holds = page.items.iter().map(|(_, hold)| wire::hold_view(&venue, hold, now)).collect();
    Ok(private(json(StatusCode::OK, &HoldList { holds, next })))
}

/// Reads a hold.
#[utoipa::path(get, path = "/v1/holds/{hold}", tag = "holds", params(("hold" = String, Path),
    ("Hold-Secret" = String, Header)), responses((status = 200, body = HoldView), (status = 404, body = Problem)))]
pub(crate) async fn read(
    State(app): State<App>,
    Path(hold): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let secret = secret(&headers);
    let done = app.engine.hold(proven_hold(&app, &hold, secret)?, secret).await?;
    let Outcome::Hold(hold) = &done.outcome else { return Ok(answer(&app, &done, StatusCode::OK)) };
    let mut view = wire::hold_view(&done.venue, hold, done.at);
    if let Some(booking) = hold.booking {
        // Whoever has the secret may know that the sale was undone; reading bookings is for operators.
        let done = app.engine.booking(booking).await?;
        if let Outcome::Booking(booking) = &done.outcome {
            view.booking_state = Some(wire::booking_state(booking).to_owned());
        }
    }
    Ok(private(json(StatusCode::OK, &view)))
}

/// Extends a hold, adds items, gives items back: all of it or nothing.
#[utoipa::path(patch, path = "/v1/holds/{hold}", request_body = PatchHold, tag = "holds",
    params(("hold" = String, Path), ("Hold-Secret" = String, Header)), responses((status = 200, body = HoldView),
    (status = 404, body = Problem), (status = 409, description = "extend-cap, seat-taken, sold-out", body = Problem),
    (status = 410, description = "hold-expired", body = Problem),
    (status = 412, description = "version-mismatch", body = Problem)))]
pub(crate) async fn amend(
    State(app): State<App>,
    Path(hold): Path<String>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let write = Write::read(&app, request, BODY_BYTES_MAX).await?;
    let body: PatchHold = parse(&write.body)?;
    let hold = proven_hold(&app, &hold, write.secret)?;
    if let Some(done) = remembered(&app, hold, &write).await? {
        return Ok(answer(&app, &done, StatusCode::OK));
    }
    let venue = venue_of(&app, hold, &write).await?.ok_or_else(ApiError::not_found)?;
    let command = wire::amend_hold(&venue, hold, &body)?;
    let done = write.execute(&app, command, Some(&venue)).await?;
    Ok(answer(&app, &done, StatusCode::OK))
}

/// Gives a hold back. Giving back what is over already is no mistake.
#[utoipa::path(delete, path = "/v1/holds/{hold}", tag = "holds", params(("hold" = String, Path),
    ("Hold-Secret" = String, Header)), responses((status = 200, body = HoldView), (status = 404, body = Problem),
    (status = 409, description = "hold-state: it is being paid for, or sold", body = Problem)))]
pub(crate) async fn release(
    State(app): State<App>,
    Path(hold): Path<String>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let write = Write::read(&app, request, BODY_BYTES_MAX).await?;
    if !write.body.is_empty() {
        return Err(ApiError::bad_request("a release has no body"));
    }
    let hold = proven_hold(&app, &hold, write.secret)?;
    let done = write.execute(&app, Command::ReleaseHold(hold), None).await?;
    Ok(answer(&app, &done, StatusCode::OK))
}

/// Takes a hold away, for operators.
#[utoipa::path(post, path = "/v1/holds/{hold}/revoke", request_body = RevokeHold, tag = "operating",
    params(("hold" = String, Path)), responses((status = 200, body = HoldView), (status = 404, body = Problem)))]
pub(crate) async fn revoke(
    State(app): State<App>,
    Path(hold): Path<String>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let write = Write::read(&app, request, BODY_BYTES_MAX).await?;
    let body: RevokeHold = parse_optional(&write.body)?;
    let reason = wire::reason(body.reason.as_deref())?;
    let hold = hold_id(&hold)?;
    let done = write.execute(&app, Command::RevokeHold(hold, reason.clone()), None).await?;
    if matches!(&done.outcome, Outcome::Hold(known) if known.ended_at == done.at && !done.replayed) {
        tracing::info!(%hold, reason = reason.as_ref().map(leasehold_core::Text::as_str), "revoked a hold");
    }
    Ok(answer(&app, &done, StatusCode::OK))
}

/// What this very request was answered before. The hold itself may be forgotten by now.
pub(crate) async fn remembered(
    app: &App,
    hold: leasehold_core::HoldId,
    write: &Write,
) -> Result<Option<leasehold_engine::Done>, ApiError> {
    match write.key {
        Some(key) => Ok(app.engine.remembered(hold, write.secret, key).await?),
        None => Ok(None),
    }
}

/// The venue of a hold, for whoever may know it; none when the hold is not known.
pub(crate) async fn venue_of(
    app: &App,
    hold: leasehold_core::HoldId,
    write: &Write,
) -> Result<Option<std::sync::Arc<Venue>>, ApiError> {
    match app.engine.hold(hold, write.secret).await {
        Ok(done) => Ok(Some(done.venue)),
        Err(EngineError::Refused(Refusal::NotFound)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
