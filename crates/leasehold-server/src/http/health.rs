//! Whether the server is alive, whether it takes work, and what it counted.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use leasehold_api::Code;

use crate::app::App;
use crate::problem::ApiError;

/// The process is alive. Says nothing of the store.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200)))]
pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

/// The server takes work.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200), (status = 503)))]
pub(crate) async fn ready(State(app): State<App>) -> Result<&'static str, ApiError> {
    let ready = app.engine.is_ready() && !app.stopping.is_cancelled();
    if ready { Ok("ready\n") } else { Err(ApiError::new(Code::Overloaded)) }
}

/// Counters in Prometheus' format.
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200)))]
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let mut text = String::new();
    if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &app.registry) {
        tracing::error!(%error, "the counters could not be written");
    }
    let mut response = text.into_response();
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // Counters of different processes cannot be compared, and one address may lead to several.
    response.headers_mut().insert("leasehold-instance", app.instance.clone());
    response
}
