//! `/v1/events/{event}/blocks`: seats and units kept back from sale.

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use http::{Request, StatusCode};
use leasehold_api::{BlockList, BlockView, CreateBlock, Problem};
use leasehold_core::{BlockId, Command};

use super::{Write, answer, json, page_asked_for, private, venue};
use crate::app::App;
use crate::body::{BODY_BYTES_MAX, parse};
use crate::problem::ApiError;
use crate::wire;

/// Keeps seats back. Each must be free.
#[utoipa::path(post, path = "/v1/events/{event}/blocks", request_body = CreateBlock, tag = "operating",
    params(("event" = String, Path)), responses((status = 201, body = BlockView),
    (status = 409, description = "seat-taken, sold-out", body = Problem)))]
pub(crate) async fn create(
    State(app): State<App>,
    Path(event): Path<String>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let write = Write::read(&app, request, BODY_BYTES_MAX).await?;
    let body: CreateBlock = parse(&write.body)?;
    let venue = venue(&app, &event).await?;
    let done = write.execute(&app, wire::create_block(&venue, &body)?, Some(&venue)).await?;
    if !done.replayed {
        tracing::info!(event = %venue.id, items = body.seats.len() + body.pools.len(), reason = body.reason, "blocked");
    }
    Ok(answer(&app, &done, StatusCode::CREATED))
}

/// Lists what is kept back.
#[utoipa::path(get, path = "/v1/events/{event}/blocks", tag = "operating", params(("event" = String, Path),
    ("after" = Option<u64>, Query, description = "`next` of the page before"),
    ("limit" = Option<usize>, Query, description = "1 to 1000")), responses((status = 200, body = BlockList)))]
pub(crate) async fn list(
    State(app): State<App>,
    Path(event): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let (after, limit) = page_asked_for(query.as_deref())?;
    let venue = venue(&app, &event).await?;
    let page = app.engine.blocks(&venue, after, limit).await?;
    let next = page.next().map(|place| place.to_string());
    let blocks = page.items.iter().map(|(_, block)| wire::block_view(&venue, block)).collect();
    Ok(private(json(StatusCode::OK, &BlockList { blocks, next })))
}

/// Puts blocked seats on sale again.
#[utoipa::path(delete, path = "/v1/events/{event}/blocks/{block}", tag = "operating", params(
    ("event" = String, Path), ("block" = String, Path)), responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn remove(
    State(app): State<App>,
    Path((event, block)): Path<(String, String)>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let write = Write::read(&app, request, BODY_BYTES_MAX).await?;
    if !write.body.is_empty() {
        return Err(ApiError::bad_request("a removal has no body"));
    }
    let venue = venue(&app, &event).await?;
    let block = BlockId::parse(&block).ok_or_else(ApiError::not_found)?;
    let done = write.execute(&app, Command::RemoveBlock(venue.number, block), Some(&venue)).await?;
    Ok(answer(&app, &done, StatusCode::NO_CONTENT))
}
