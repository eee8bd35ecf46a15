//! Reading a request's body: small, in time, plain JSON, and nothing but what the type knows.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use leasehold_api::{Code, Object};
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::problem::ApiError;

/// Bytes of most bodies.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a body that describes an event, which may list its seats.
pub(crate) const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Reads a body of at most `bytes_max` bytes.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
    within: Duration,
) -> Result<Bytes, ApiError> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(ApiError::new(Code::UnsupportedMediaType).detail("a body is not compressed").close());
    }
    let announced =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > bytes_max) {
        return Err(too_large(bytes_max));
    }
    let mut reading = std::pin::pin!(Limited::new(body, bytes_max).collect());
    // Most bodies came with their heads; only the others need a timer.
    let collected = match reading.as_mut().now_or_never() {
        Some(collected) => collected,
        None => {
            let late = |_| ApiError::new(Code::Timeout).close();
            tokio::time::timeout(within, reading).await.map_err(late)?
        }
    };
    let collected = collected.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => too_large(bytes_max),
        None => ApiError::bad_request("the body ended early").close(),
    })?;
    let bytes = collected.to_bytes();
    if !bytes.is_empty() {
        require_json(headers)?;
    }
    Ok(bytes)
}

/// Reads a JSON object; an empty body is not one.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let Object(value) = serde_json::from_slice(bytes).map_err(|error| refusal(&error))?;
    Ok(value)
}

/// Reads a JSON object whose fields are all optional; an empty body stands for an empty object.
pub(crate) fn parse_optional<T: DeserializeOwned + Default>(bytes: &[u8]) -> Result<T, ApiError> {
    if bytes.is_empty() { Ok(T::default()) } else { parse(bytes) }
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::new(Code::TooLarge).detail(format!("at most {bytes_max} bytes")).close()
}

/// What cannot be read is 400, what can be read and is of the wrong kind is 422.
fn refusal(error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    let unreadable = match error.classify() {
        Category::Syntax => !text.starts_with("number out of range"),
        Category::Eof | Category::Io => true,
        Category::Data => text.starts_with("unknown field") || text.starts_with("duplicate field"),
    };
    // The text quotes what was sent: long values are cut, so that no one's body is echoed at length.
    let shown: String = text.chars().take(200).collect();
    if unreadable { ApiError::bad_request(shown) } else { ApiError::invalid(shown) }
}

fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let refused = || Err(ApiError::new(Code::UnsupportedMediaType));
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return refused() };
    if value == "application/json" {
        return Ok(());
    }
    let Ok(text) = value.to_str() else { return refused() };
    let mut parts = text.split(';').map(str::trim);
    if !parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        return refused();
    }
    for parameter in parts {
        let parameter = parameter.to_ascii_lowercase();
        if !matches!(parameter.as_str(), "charset=utf-8" | "charset=\"utf-8\"") {
            return refused();
        }
    }
    Ok(())
}
