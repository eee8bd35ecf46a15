//! `/v1/events/{event}/availability`: every seat in one small answer, or the changes since.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use flate2::Compression;
use http::{HeaderMap, StatusCode};
use leasehold_api::{Availability as View, Problem, SeatChange};
use leasehold_engine::{Availability, EventSummary, Since, Snapshot, Venue, Version};

use super::{Encoded, Kept, aged, json, millis, venue};
use crate::app::App;
use crate::problem::ApiError;
use crate::query::Query;
use crate::wire;

/// Making answers takes at most about this part of the time, however many readers ask: one in so many.
const SHARE: u32 = 20;

/// Answers that are ready to be sent.
#[derive(Debug, Default)]
pub(crate) struct AvailabilityCache {
    ready: Kept<Ready>,
    making: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Ready {
    version: Version,
    content: Encoded,
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
    let behind = app.engine.behind();
    if let Some(since) = query.text("since") {
        let version = version_seen(&app, &venue, since).await?;
        if let Availability::Changes { seats, summary } =
            app.engine.availability(&venue, Since::Version(version)).await?
        {
            let changes = seats.iter().map(|update| SeatChange(update.seat.0, wire::letter(update.status)));
            let mut view = view(&venue, &summary);
            view.changes = Some(changes.collect());
            view.stale_ms = millis(behind);
            return Ok(aged(json(StatusCode::OK, &view), behind));
        }
    }
    if behind.is_some() {
        // Always in full, and without a tag: who does not know how it stands cannot say that nothing changed.
        let mut view = full_view(&venue, &*snapshot(&app, &venue).await?);
        view.stale_ms = millis(behind);
        return Ok(aged(json(StatusCode::OK, &view), behind));
    }
    let ready = app.availability.ready(&app, &venue).await?;
    Ok(ready.content.response(&headers, "application/json"))
}

/// A version the reader says it has seen: one that there was.
pub(crate) async fn version_seen(app: &App, venue: &Venue, text: &str) -> Result<Version, ApiError> {
    let version = Version::parse(text).ok_or_else(|| ApiError::invalid("a version is `epoch-number`"))?;
    let current = app.engine.event(venue).await?.version;
    if version.epoch == current.epoch && !app.engine.has_had(venue, version).await? {
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
        stale_ms: None,
    }
}

fn full_view(venue: &Venue, snapshot: &Snapshot) -> View {
    let seats = snapshot.seats.iter().map(|status| wire::letter(*status)).collect();
    View { full: true, seats: Some(seats), ..view(venue, &snapshot.summary) }
}

async fn snapshot(app: &App, venue: &Venue) -> Result<Arc<Snapshot>, ApiError> {
    match app.engine.availability(venue, Since::Nothing).await? {
        Availability::Full(snapshot) => Ok(snapshot),
        Availability::Changes { .. } => unreachable!("a reader that knows nothing gets everything"),
    }
}

impl AvailabilityCache {
    /// An answer that is no older than this call. When making them takes too much of the time, readers wait a
    /// moment and share one.
    async fn ready(&self, app: &App, venue: &Venue) -> Result<Arc<Ready>, ApiError> {
        let wanted = app.engine.event(venue).await?.version;
        if let Some(ready) = self.ready.get(venue.number).filter(|ready| ready.shows(wanted)) {
            return Ok(ready);
        }
        let _one_at_a_time = self.making.lock().await;
        if let Some(ready) = self.ready.get(venue.number) {
            if ready.shows(wanted) {
                return Ok(ready);
            }
            tokio::time::sleep((ready.took * SHARE).saturating_sub(ready.made_at.elapsed())).await;
        }
        let ready = Arc::new(Ready::make(venue, &*snapshot(app, venue).await?));
        self.ready.put(venue.number, Arc::clone(&ready));
        Ok(ready)
    }
}

impl Ready {
    /// Whether it shows this version or a later one.
    fn shows(&self, version: Version) -> bool {
        self.version.epoch == version.epoch && self.version.number >= version.number
    }

    fn make(venue: &Venue, snapshot: &Snapshot) -> Self {
        let made_at = Instant::now();
        let view = full_view(venue, snapshot);
        let plain =
            serde_json::to_vec(&view).expect("wire types have string keys and no failing serializers");
        let version = snapshot.summary.version;
        let content = Encoded::tagged(plain.into(), &version.to_string(), Compression::fast());
        Self { version, content, made_at, took: made_at.elapsed() }
    }
}
