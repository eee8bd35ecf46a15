//! `/v1/events/{event}/stream`: an event's changes as server-sent events, without a gap.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::unfold;
use http::{HeaderMap, HeaderValue, header};
use leasehold_api::{Code, Problem, SeatChange, StreamChange, StreamReset};
use leasehold_engine::{Change, Since, StreamStep, Subscription, Venue, Version};

use super::availability::version_seen;
use super::venue;
use crate::app::{App, Permit};
use crate::problem::ApiError;
use crate::query::Query;
use crate::service::Streaming;
use crate::wire;

/// A sign of life is sent this often: a real message, because a script cannot see comments.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// Streams the changes of an event.
#[utoipa::path(get, path = "/v1/events/{event}/stream", tag = "events", params(("event" = String, Path),
    ("Last-Event-ID" = Option<String>, Header, description = "the last version seen"),
    ("since" = Option<String>, Query, description = "the same, for clients that cannot set headers")),
    responses((status = 200, description = "events `hello`, `change`, `reset` and `ping`", body = StreamChange,
    content_type = "text/event-stream"), (status = 404, body = Problem)))]
pub(crate) async fn read(
    State(app): State<App>,
    Path(event): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let query = Query::parse(query.as_deref(), &["since"])?;
    let venue = venue(&app, &event).await?;
    let seen = match headers.get("last-event-id") {
        Some(value) => Some(value.to_str().map_err(|_| ApiError::invalid("a version is `epoch-number`"))?),
        None => query.text("since"),
    };
    let since = match seen {
        Some(seen) => Since::Version(version_seen(&app, &venue, seen).await?),
        None => Since::Nothing,
    };
    let permit = app.stream_permit().ok_or_else(|| ApiError::new(Code::Overloaded))?;
    let current = app.engine.event(&venue).await?.version;
    let from = match since {
        Since::Version(version) => version,
        Since::Nothing => current,
    };
    let subscription = app.engine.subscribe(&venue, Since::Version(from)).await?;
    let reader = Reader { app, venue, subscription, greeting: Some(from), _permit: permit };
    let body = Body::from_stream(unfold(reader, |mut reader| async move {
        let text = reader.next().await?;
        Some((Ok::<Bytes, Infallible>(text.into()), reader))
    }));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response.extensions_mut().insert(Streaming);
    Ok(response)
}

/// One client that listens.
struct Reader {
    app: App,
    venue: Arc<Venue>,
    subscription: Subscription,
    greeting: Option<Version>,
    _permit: Permit,
}

impl Reader {
    /// The next messages; none when the server stops.
    async fn next(&mut self) -> Option<String> {
        if let Some(version) = self.greeting.take() {
            return Some(format!(
                "id: {version}\nretry: 1000\nevent: hello\ndata: {{\"version\":\"{version}\"}}\n\n"
            ));
        }
        let stopping = self.app.stopping.clone();
        tokio::select! {
            step = self.subscription.next() => match step {
                StreamStep::Changes(changes) => Some(self.messages(&changes)),
                StreamStep::Reset(version) => {
                    let reset = StreamReset { version: version.to_string() };
                    Some(message(&version, "reset", &reset))
                }
                StreamStep::End => None,
            },
            () = tokio::time::sleep(PING_INTERVAL) => Some("event: ping\ndata: {}\n\n".to_owned()),
            () = stopping.cancelled() => None,
        }
    }

    fn messages(&self, changes: &[Arc<Change>]) -> String {
        let mut text = String::new();
        for change in changes {
            let seats =
                change.seats.iter().map(|update| SeatChange(update.seat.0, wire::letter(update.status)));
            let pools = change
                .pools
                .iter()
                .map(|(pool, counts)| wire::pool_count(self.venue.pools[pool.0 as usize].as_str(), counts));
            let view = StreamChange {
                version: change.version.to_string(),
                at: wire::time(change.at),
                kind: change.kind.as_str().to_owned(),
                seats: seats.collect(),
                pools: pools.collect(),
            };
            text.push_str(&message(&change.version, "change", &view));
        }
        text
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.app.stream_ended();
    }
}

fn message(version: &Version, event: &str, data: &impl serde::Serialize) -> String {
    let data = serde_json::to_string(data).expect("wire types have string keys and no failing serializers");
    let mut text = String::with_capacity(data.len() + 48);
    write!(text, "id: {version}\nevent: {event}\ndata: {data}\n\n")
        .expect("writing into a string does not fail");
    text
}
