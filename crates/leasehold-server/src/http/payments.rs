//! `/v1/holds/{hold}/payment`: the time of a hold stands still while its buyer pays. And payments to give back.

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use http::{Request, StatusCode};
use leasehold_api::{BeginPayment, HoldView, PaymentFailed, Problem, RefundList};

use super::{Write, answer, json, page_asked_for, private, proven_hold, venue};
use crate::app::App;
use crate::body::{BODY_BYTES_MAX, parse};
use crate::problem::ApiError;
use crate::wire;

/// The buyer goes to pay.
#[utoipa::path(post, path = "/v1/holds/{hold}/payment", request_body = BeginPayment, tag = "payment",
    params(("hold" = String, Path), ("Hold-Secret" = String, Header)), responses((status = 200, body = HoldView),
    (status = 404, body = Problem), (status = 409, description = "hold-state, payment-ref-used, payment-cap", body = Problem),
    (status = 410, description = "hold-expired", body = Problem),
    (status = 429, description = "payments-busy", body = Problem)))]
pub(crate) async fn begin(
    State(app): State<App>,
    Path(hold): Path<String>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let write = Write::read(&app, request, BODY_BYTES_MAX).await?;
    let body: BeginPayment = parse(&write.body)?;
    let hold = proven_hold(&app, &hold, write.secret)?;
    let done = write.execute(&app, wire::begin_payment(hold, &body)?, None).await?;
    Ok(answer(&app, &done, StatusCode::OK))
}

/// The payment failed; the buyer may try again.
#[utoipa::path(post, path = "/v1/holds/{hold}/payment/failed", request_body = PaymentFailed, tag = "payment",
    params(("hold" = String, Path), ("Hold-Secret" = String, Header)), responses((status = 200, body = HoldView),
    (status = 404, body = Problem), (status = 409, description = "hold-state", body = Problem),
    (status = 410, description = "hold-expired", body = Problem)))]
pub(crate) async fn failed(
    State(app): State<App>,
    Path(hold): Path<String>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let write = Write::read(&app, request, BODY_BYTES_MAX).await?;
    let body: PaymentFailed = parse(&write.body)?;
    let hold = proven_hold(&app, &hold, write.secret)?;
    let done = write.execute(&app, wire::payment_failed(hold, &body)?, None).await?;
    Ok(answer(&app, &done, StatusCode::OK))
}

/// Lists an event's payments that must be given back, for operators.
#[utoipa::path(get, path = "/v1/events/{event}/refunds", tag = "operating", params(("event" = String, Path),
    ("after" = Option<u64>, Query, description = "`next` of the page before"),
    ("limit" = Option<usize>, Query, description = "holds that have such payments, 1 to 1000")),
    responses((status = 200, body = RefundList)))]
pub(crate) async fn refunds(
    State(app): State<App>,
    Path(event): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let (after, limit) = page_asked_for(query.as_deref())?;
    let venue = venue(&app, &event).await?;
    let page = app.engine.refunds(&venue, after, limit).await?;
    let next = page.next().map(|place| place.to_string());
    let refunds = page.items.iter().flat_map(|(_, due)| wire::refund_views(due)).collect();
    Ok(private(json(StatusCode::OK, &RefundList { refunds, next })))
}
