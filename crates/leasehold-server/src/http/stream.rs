//! `/v1/events/{event}/stream`: an event's changes as server-sent events, without a gap.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::unfold;
use http::{HeaderMap, HeaderValue, header};
use leasehold_api::{Code, Problem, SeatChange, StreamChange, StreamHello, StreamPing, StreamReset};
use leasehold_engine::{Change, Since, StreamStep, Subscription, Venue, Version};

use super::availability::version_seen;
use super::{millis, venue};
use crate::app::{App, StreamPermit};
use crate::problem::ApiError;
use crate::query::Query;
use crate::service::Streaming;
use crate::wire;

/// A sign of life is sent this often: a real message, because a script cannot see comments.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// How often a quiet stream looks whether it is behind; it says so each time, and once when it is over.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);

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
    let reader = Reader {
        app,
        venue,
        subscription,
        greeting: Some(from),
        was_behind: false,
        spoke_at: Instant::now(),
        _permit: permit,
    };
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
    /// What the client was told last.
    was_behind: bool,
    spoke_at: Instant,
    _permit: StreamPermit,
}

impl Reader {
    /// The next messages; none when the server stops.
    async fn next(&mut self) -> Option<String> {
        if let Some(version) = self.greeting.take() {
            let hello = StreamHello { version: version.to_string(), stale_ms: self.stale_ms() };
            return Some(format!("retry: 1000\n{}", message(&version, "hello", &hello)));
        }
        let stopping = self.app.stopping.clone();
        loop {
            tokio::select! {
                step = self.subscription.next() => {
                    // A client that is told of changes knows that it is not behind.
                    (self.was_behind, self.spoke_at) = (false, Instant::now());
                    return match step {
                        StreamStep::Changes(changes) => Some(self.messages(&changes)),
                        StreamStep::Reset(version) => {
                            let reset = StreamReset { version: version.to_string() };
                            Some(message(&version, "reset", &reset))
                        }
                        StreamStep::End => None,
                    };
                }
                () = tokio::time::sleep(LOOK_INTERVAL) => {
                    let was_behind = self.was_behind;
                    let ping = StreamPing { stale_ms: self.stale_ms() };
                    if was_behind || ping.stale_ms.is_some() || self.spoke_at.elapsed() >= PING_INTERVAL {
                        self.spoke_at = Instant::now();
                        return Some(format!("event: ping\ndata: {}\n\n", data(&ping)));
                    }
                }
                () = stopping.cancelled() => return None,
            }
        }
    }

    /// How far it is behind, which the client is about to be told.
    fn stale_ms(&mut self) -> Option<u64> {
        let stale_ms = millis(self.app.engine.behind());
        self.was_behind = stale_ms.is_some();
        stale_ms
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

fn data(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("wire types have string keys and no failing serializers")
}

fn message(version: &Version, event: &str, value: &impl serde::Serialize) -> String {
    let data = data(value);
    let mut text = String::with_capacity(data.len() + 48);
    write!(text, "id: {version}\nevent: {event}\ndata: {data}\n\n")
        .expect("writing into a string does not fail");
    text
}
