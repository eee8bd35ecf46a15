//! Reading a request's body: small, in time, plain JSON, and nothing but what the type knows.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use leasehold_api::{Code, Object};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::ApiError;

/// Bytes of most bodies.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a body that describes an event, which may list its seats.
pub(crate) const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Larger bodies than most that are worked on at a time. Each may cost many times its bytes once it is parsed.
const LARGE_BODIES_MAX: usize = 4;
/// How long a larger body waits for its place. Meanwhile nothing more of it is read.
const LARGE_BODY_WAIT: Duration = Duration::from_secs(2);

/// Places for bodies larger than [`BODY_BYTES_MAX`]: without a bound, few clients could fill the memory with them.
#[derive(Debug)]
pub(crate) struct LargeBodies(Arc<Semaphore>);

/// Leave to have one larger body in memory, given back when dropped.
pub(crate) type LargePlace = OwnedSemaphorePermit;

impl Default for LargeBodies {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_BODIES_MAX)))
    }
}

impl LargeBodies {
    async fn place(&self) -> Result<LargePlace, ApiError> {
        let place = tokio::time::timeout(LARGE_BODY_WAIT, Arc::clone(&self.0).acquire_owned()).await;
        let place = place.map_err(|_| {
            ApiError::new(Code::Overloaded).detail("too many large bodies are being read").close()
        })?;
        Ok(place.expect("nobody closes the places"))
    }
}

/// A body that was read to its end, with its place if it is a larger one.
pub(crate) struct ReadBody {
    pub(crate) bytes: Bytes,
    pub(crate) place: Option<LargePlace>,
}

/// Reads a body of at most `bytes_max` bytes.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
    within: Duration,
    large: &LargeBodies,
) -> Result<ReadBody, ApiError> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(ApiError::new(Code::UnsupportedMediaType).detail("a body is not compressed").close());
    }
    let announced =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > bytes_max) {
        return Err(too_large(bytes_max));
    }
    let mut reading = std::pin::pin!(collect(body, bytes_max, large));
    // Most bodies came with their heads; only the others need a timer.
    let collected = match reading.as_mut().now_or_never() {
        Some(collected) => collected?,
        None => {
            let late = |_| ApiError::new(Code::Timeout).close();
            tokio::time::timeout(within, reading).await.map_err(late)??
        }
    };
    if !collected.bytes.is_empty() {
        require_json(headers)?;
    }
    Ok(collected)
}

/// Puts a body's pieces together. Each is copied: many small ones would keep more memory than their bytes.
async fn collect(mut body: Body, bytes_max: usize, large: &LargeBodies) -> Result<ReadBody, ApiError> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut place = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::bad_request("the body ended early").close())?;
        let Ok(piece) = frame.into_data() else { continue };
        let length = first.len().max(all.len()) + piece.len();
        if length > bytes_max {
            return Err(too_large(bytes_max));
        }
        if length > BODY_BYTES_MAX && place.is_none() {
            place = Some(large.place().await?);
        }
        if length == piece.len() {
            first = piece;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&piece);
        }
    }
    Ok(ReadBody { bytes: if all.is_empty() { first } else { all.freeze() }, place })
}

/// Does what takes long with a larger body where it keeps no thread from serving others.
pub(crate) async fn work_on<T: Send + 'static>(
    bytes: &Bytes,
    work: impl FnOnce(&Bytes) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if bytes.len() <= BODY_BYTES_MAX {
        return work(bytes);
    }
    let bytes = bytes.clone();
    let worked = tokio::task::spawn_blocking(move || work(&bytes));
    worked.await.map_err(|_| ApiError::new(Code::OutcomeUnknown))?
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
