//! The whole API on one screen.

use axum::Router;
use axum::routing::{delete, get, post};
use leasehold_api::Code;

use crate::app::App;
use crate::http::{
    availability, blocks, bookings, docs, events, health, holds, locks, operator, pages, payments, stream,
    venues,
};
use crate::problem::ApiError;

/// Every route.
pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route("/v1/events", post(events::create).get(events::list))
        .route("/v1/events/{event}", get(events::read).patch(events::update))
        .route("/v1/events/{event}/venue", get(venues::read))
        .route("/v1/events/{event}/availability", get(availability::read))
        .route("/v1/events/{event}/stream", get(stream::read))
        .route("/v1/events/{event}/holds", post(holds::create).get(holds::list))
        .route("/v1/events/{event}/refunds", get(payments::refunds))
        .route("/v1/events/{event}/blocks", post(blocks::create).get(blocks::list))
        .route("/v1/events/{event}/blocks/{block}", delete(blocks::remove))
        .route("/v1/holds/{hold}", get(holds::read).patch(holds::amend).delete(holds::release))
        .route("/v1/holds/{hold}/payment", post(payments::begin))
        .route("/v1/holds/{hold}/payment/failed", post(payments::failed))
        .route("/v1/holds/{hold}/confirm", post(bookings::confirm))
        .route("/v1/holds/{hold}/revoke", post(holds::revoke))
        .route("/v1/bookings/{booking}", get(bookings::read))
        .route("/v1/bookings/{booking}/cancel", post(bookings::cancel))
        .route("/v1/locks", get(locks::list))
        .route(
            "/v1/locks/{name}",
            post(locks::acquire).get(locks::read).patch(locks::renew).delete(locks::release),
        )
        .route("/v1/operator/events/{event}/log", get(operator::log))
        .route("/v1/operator/problems", get(operator::problems))
        .route("/v1/operator/replicas", get(operator::replicas))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(docs::openapi))
        .route("/docs", get(docs::page))
        .route("/docs/reference.js", get(docs::script))
        .route("/", get(pages::lobby))
        .route("/events/{event}", get(pages::event))
        .route("/console", get(pages::console))
        .route("/console/rush", get(pages::rush).post(pages::start_rush))
        .route("/web/{file}", get(pages::file))
        .fallback(|| async { ApiError::not_found() })
        .method_not_allowed_fallback(|| async { ApiError::new(Code::MethodNotAllowed) })
        .with_state(app)
}
