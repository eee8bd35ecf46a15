//! Confirming a hold, and `/v1/bookings`: sales.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{Request, StatusCode};
use leasehold_api::{BookingView, CancelBooking, ConfirmHold, Problem};
use leasehold_core::{BookingId, Command};
use leasehold_engine::Outcome;

use super::holds::{remembered, venue_of};
use super::{Write, answer, proven_hold};
use crate::app::App;
use crate::body::{BODY_BYTES_MAX, parse_optional};
use crate::problem::ApiError;
use crate::wire;

/// Turns a hold into a sale; with a payment, also after the hold has ended.
#[utoipa::path(post, path = "/v1/holds/{hold}/confirm", request_body = ConfirmHold, tag = "bookings",
    params(("hold" = String, Path), ("Hold-Secret" = String, Header)), responses((status = 201, body = BookingView),
    (status = 404, body = Problem), (status = 409, description = "refund-due, hold-state", body = Problem),
    (status = 410, description = "hold-expired", body = Problem)))]
pub(crate) async fn confirm(
    State(app): State<App>,
    Path(hold): Path<String>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let write = Write::read(&app, request, BODY_BYTES_MAX).await?;
    let body: ConfirmHold = parse_optional(&write.body)?;
    let hold = proven_hold(&app, &hold, write.secret)?;
    let mut venue = None;
    if body.items.is_some() {
        if let Some(done) = remembered(&app, hold, &write).await? {
            return Ok(answer(&app, &done, StatusCode::CREATED));
        }
        venue = venue_of(&app, hold, &write).await?;
    }
    let command = wire::confirm_hold(venue.as_deref(), hold, &body)?;
    let done = write.execute(&app, command, venue.as_deref()).await?;
    Ok(answer(&app, &done, StatusCode::CREATED))
}

/// Reads a sale.
#[utoipa::path(get, path = "/v1/bookings/{booking}", tag = "bookings", params(("booking" = String, Path)),
    responses((status = 200, body = BookingView), (status = 404, body = Problem)))]
pub(crate) async fn read(State(app): State<App>, Path(booking): Path<String>) -> Result<Response, ApiError> {
    let done = app.engine.booking(booking_id(&booking)?).await?;
    Ok(answer(&app, &done, StatusCode::OK))
}

/// Undoes a sale. Its seats are free at once.
#[utoipa::path(post, path = "/v1/bookings/{booking}/cancel", request_body = CancelBooking, tag = "bookings",
    params(("booking" = String, Path)), responses((status = 200, body = BookingView), (status = 404, body = Problem)))]
pub(crate) async fn cancel(
    State(app): State<App>,
    Path(booking): Path<String>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let write = Write::read(&app, request, BODY_BYTES_MAX).await?;
    let body: CancelBooking = parse_optional(&write.body)?;
    let reason = wire::reason(body.reason.as_deref())?;
    let booking = booking_id(&booking)?;
    let command = Command::CancelBooking(leasehold_core::CancelBooking { booking });
    let done = write.execute(&app, command, None).await?;
    if matches!(&done.outcome, Outcome::Booking(known) if known.cancelled_at == done.at && !done.replayed) {
        tracing::info!(%booking, reason = reason.as_ref().map(leasehold_core::Text::as_str), "cancelled a booking");
    }
    Ok(answer(&app, &done, StatusCode::OK))
}

fn booking_id(text: &str) -> Result<BookingId, ApiError> {
    BookingId::parse(text).ok_or_else(ApiError::not_found)
}
