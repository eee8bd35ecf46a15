//! `/v1/events/{event}/availability`: every seat in one small answer, or the changes since.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use leasehold_api::{Availability as View, Problem, SeatChange};
use leasehold_core::EventNo;
use leasehold_engine::{Availability, EventSummary, Since, Snapshot, Venue, Version};

use super::{json, venue};
use crate::app::App;
use crate::problem::ApiError;
use crate::query::Query;
use crate::wire;

/// Events whose answer is kept ready.
const CACHED_MAX: usize = 64;
/// Making answers takes at most about this part of the time, however many readers ask: one in so many.
const SHARE: u32 = 20;

/// Answers that are ready to be sent.
#[derive(Debug, Default)]
pub(crate) struct AvailabilityCache {
    ready: Mutex<Vec<(EventNo, Arc<Ready>)>>,
    making: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Ready {
    version: Version,
    plain: Bytes,
    compressed: Bytes,
    made_at: Instant,
    took: Duration,
}

/// Reads how the seats stand.
#[utoipa::path(get, path = "/v1/events/{event}/availability", tag = "events", params(("event" = String, Path),
    ("since" = Option<String>, Query, description = "a version: only what changed after it")),
    responses((status = 200, body = View), (status = 304), (status = 404, body = Problem)))]
pub(crate) async fn read(
    State(app): State<App>,
    Path(event): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let query = Query::parse(query.as_deref(), &["since"])?;
    let venue = venue(&app, &event).await?;
    if let Some(since) = query.text("since") {
        let version = version_seen(&app, &venue, since).await?;
        if let Availability::Changes { seats, summary } =
            app.engine.availability(&venue, Since::Version(version)).await?
        {
            let changes = seats.iter().map(|update| SeatChange(update.seat.0, wire::letter(update.status)));
            let mut view = view(&venue, &summary);
            view.changes = Some(changes.collect());
            return Ok(json(StatusCode::OK, &view));
        }
    }
    let ready = app.availability.ready(&app, &venue).await?;
    Ok(ready.response(&headers))
}

/// A version the reader says it has seen: one that there was.
pub(crate) async fn version_seen(app: &App, venue: &Venue, text: &str) -> Result<Version, ApiError> {
    let version = Version::parse(text).ok_or_else(|| ApiError::invalid("a version is `epoch-number`"))?;
    let current = app.engine.event(venue).await?.version;
    if version.epoch == current.epoch && version.number > current.number {
        return Err(ApiError::invalid("that version has not been yet"));
    }
    Ok(version)
}

fn view(venue: &Venue, summary: &EventSummary) -> View {
    let pools = venue.pools.iter().zip(&summary.pools).map(|(id, pool)| wire::pool_count(id.as_str(), pool));
    View {
        event: venue.id.to_string(),
        version: summary.version.to_string(),
        full: false,
        counts: wire::seat_counts(summary),
        seats: None,
        changes: None,
        pools: pools.collect(),
    }
}

impl AvailabilityCache {
    /// An answer that is no older than this call. When making them takes too much of the time, readers wait a
    /// moment and share one.
    async fn ready(&self, app: &App, venue: &Venue) -> Result<Arc<Ready>, ApiError> {
        let wanted = app.engine.event(venue).await?.version;
        if let Some(ready) = self.known(venue.number).filter(|ready| ready.shows(wanted)) {
            return Ok(ready);
        }
        let _one_at_a_time = self.making.lock().await;
        if let Some(ready) = self.known(venue.number) {
            if ready.shows(wanted) {
                return Ok(ready);
            }
            tokio::time::sleep((ready.took * SHARE).saturating_sub(ready.made_at.elapsed())).await;
        }
        let Availability::Full(snapshot) = app.engine.availability(venue, Since::Nothing).await? else {
            unreachable!("a reader that knows nothing gets everything")
        };
        let ready = Arc::new(Ready::make(venue, &snapshot));
        let mut cached = self.lock();
        cached.retain(|(event, _)| *event != venue.number);
        if cached.len() >= CACHED_MAX {
            cached.remove(0);
        }
        cached.push((venue.number, Arc::clone(&ready)));
        Ok(ready)
    }

    fn known(&self, event: EventNo) -> Option<Arc<Ready>> {
        self.lock().iter().find(|(known, _)| *known == event).map(|(_, ready)| Arc::clone(ready))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(EventNo, Arc<Ready>)>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ready {
    /// Whether it shows this version or a later one.
    fn shows(&self, version: Version) -> bool {
        self.version.epoch == version.epoch && self.version.number >= version.number
    }

    fn make(venue: &Venue, snapshot: &Snapshot) -> Self {
        let made_at = Instant::now();
        let mut view = view(venue, &snapshot.summary);
        view.full = true;
        view.seats = Some(snapshot.seats.iter().map(|status| wire::letter(*status)).collect());
        let plain =
            serde_json::to_vec(&view).expect("wire types have string keys and no failing serializers");
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let compressed = encoder.write_all(&plain).and_then(|()| encoder.finish());
        let compressed = compressed.expect("writing into memory does not fail");
        let version = snapshot.summary.version;
        Self { version, plain: plain.into(), compressed: compressed.into(), made_at, took: made_at.elapsed() }
    }

    fn response(&self, headers: &HeaderMap) -> Response {
        let tag = format!("W/\"{}\"", self.version);
        let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let unchanged =
            known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag || one.trim() == "*"));
        let accepted =
            headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let compress = super::accepts_gzip(accepted);
        let mut response = match (unchanged, compress) {
            (true, _) => StatusCode::NOT_MODIFIED.into_response(),
            (false, true) => self.compressed.clone().into_response(),
            (false, false) => self.plain.clone().into_response(),
        };
        let response_headers = response.headers_mut();
        response_headers.insert(header::ETAG, tag.try_into().expect("digits are a header value"));
        response_headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response_headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if !unchanged {
            response_headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            if compress {
                response_headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
        }
        response
    }
}
