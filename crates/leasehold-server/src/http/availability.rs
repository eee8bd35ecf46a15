//! `/v1/events/{event}/availability`: every seat in one small answer, or the changes since.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use flate2::Compression;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use leasehold_api::{Availability as View, Code, Problem, SeatChange};
use leasehold_engine::{Availability, EventSummary, Since, Snapshot, Venue, Version};
use tokio::sync::Semaphore;

use super::{Encoded, Kept, accepts_gzip, aged, gzip, json, millis, venue};
use crate::app::App;
use crate::problem::ApiError;
use crate::query::Query;
use crate::wire;

/// Making an event's answers takes at most about this part of the time, however many readers ask: one in so many.
const SHARE: u32 = 20;
/// Answers that are made at a time, each on a thread of its own.
const MAKERS_MAX: usize = 2;
/// Bytes of a change in an answer, at most, where a seat of a full answer takes one.
const CHANGE_BYTES_MAX: usize = r#"[999999,"f"],"#.len();
/// So few changes are sent as such, also when all seats would be fewer bytes.
const FEW_CHANGES: usize = 64;
/// More changes than these are written and compressed where that keeps nobody else waiting.
const CHANGES_AT_ONCE_MAX: usize = 1_000;

/// Answers that are ready to be sent.
#[derive(Debug)]
pub(crate) struct AvailabilityCache {
    ready: Kept<Ready>,
    /// Who makes the answer of an event: those who wait for one event do not keep the readers of another waiting.
    making: Kept<tokio::sync::Mutex<()>>,
    makers: Semaphore,
}

impl AvailabilityCache {
    /// Makes a large answer of another kind, on a thread of its own and few at a time.
    pub(crate) async fn aside<T: Send + 'static>(
        &self,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let _place = self.makers.acquire().await.map_err(|_| ApiError::new(Code::Overloaded))?;
        made_aside(make).await
    }
}

impl Default for AvailabilityCache {
    fn default() -> Self {
        Self { ready: Kept::default(), making: Kept::default(), makers: Semaphore::new(MAKERS_MAX) }
    }
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
            && is_worth_sending(seats.len(), venue.layout.seat_count())
        {
            let changes = seats.iter().map(|update| SeatChange(update.seat.0, wire::letter(update.status)));
            let mut view = view(&venue, &summary);
            view.changes = Some(changes.collect());
            view.stale_ms = millis(behind);
            return Ok(aged(changes_answer(view, &headers).await?, behind));
        }
    }
    if behind.is_some() {
        // Always in full, and without a tag: who does not know how it stands cannot say that nothing changed.
        let snapshot = snapshot(&app, &venue).await?;
        let made = made_aside(move || {
            let view = View { stale_ms: millis(behind), ..full_view(&venue, &snapshot) };
            json(StatusCode::OK, &view)
        });
        return Ok(aged(made.await?, behind));
    }
    let ready = app.availability.ready(&app, &venue).await?;
    Ok(ready.content.response(&headers, "application/json"))
}

/// Whether changes are the shorter answer, or so few that it does not matter.
fn is_worth_sending(changes: usize, seats: u32) -> bool {
    changes <= FEW_CHANGES || changes * CHANGE_BYTES_MAX <= seats as usize
}

/// The answer with the changes: compressed when there are many and the reader can.
async fn changes_answer(view: View, headers: &HeaderMap) -> Result<Response, ApiError> {
    if view.changes.as_ref().is_none_or(|changes| changes.len() <= CHANGES_AT_ONCE_MAX) {
        return Ok(json(StatusCode::OK, &view));
    }
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let compress = accepts_gzip(accepted.unwrap_or_default());
    let made = made_aside(move || {
        let plain = bytes_of(&view);
        if compress { gzip(&plain, Compression::fast()) } else { plain.into() }
    });
    let mut response = Response::new(Body::from(made.await?));
    let sent = response.headers_mut();
    sent.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    sent.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if compress {
        sent.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// Makes an answer where that keeps no thread from serving others.
async fn made_aside<T: Send + 'static>(make: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(make).await.map_err(|_| ApiError::new(Code::Overloaded))
}

fn bytes_of(view: &View) -> Vec<u8> {
    serde_json::to_vec(view).expect("wire types have string keys and no failing serializers")
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
    /// An answer that is no older than this call. When making them takes too much of the time, the event's readers
    /// wait a moment and share one.
    async fn ready(&self, app: &App, venue: &Arc<Venue>) -> Result<Arc<Ready>, ApiError> {
        let wanted = app.engine.event(venue).await?.version;
        if let Some(ready) = self.ready.get(venue.number).filter(|ready| ready.shows(wanted)) {
            return Ok(ready);
        }
        let making = self.making.get_or_put(venue.number, tokio::sync::Mutex::default);
        let _one_at_a_time = making.lock().await;
        if let Some(ready) = self.ready.get(venue.number) {
            if ready.shows(wanted) {
                return Ok(ready);
            }
            tokio::time::sleep((ready.took * SHARE).saturating_sub(ready.made_at.elapsed())).await;
        }
        let _maker = self.makers.acquire().await;
        let (snapshot, made_for) = (snapshot(app, venue).await?, Arc::clone(venue));
        let ready = Arc::new(made_aside(move || Ready::make(&made_for, &snapshot)).await?);
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
        let plain = bytes_of(&view);
        let version = snapshot.summary.version;
        let content = Encoded::tagged(plain.into(), &version.to_string(), Compression::fast());
        Self { version, content, made_at, took: made_at.elapsed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_sent_while_they_are_the_shorter_answer() {
        let longest = serde_json::to_string(&SeatChange(999_999, 'f')).unwrap();
        assert_eq!(longest.len() + 1, CHANGE_BYTES_MAX, "{longest}");
        assert!(is_worth_sending(3, 3), "few changes are short, whatever there is");
        assert!(is_worth_sending(1_000, 13_000));
        assert!(!is_worth_sending(1_001, 13_000));
    }

    #[tokio::test]
    async fn readers_of_one_event_do_not_wait_for_those_of_another() {
        let cache = AvailabilityCache::default();
        let lock_of = |event| cache.making.get_or_put(leasehold_core::EventNo(event), Default::default);
        let first = lock_of(0);
        let _making = first.lock().await;
        assert!(lock_of(0).try_lock().is_err(), "one at a time makes the answer of an event");
        assert!(lock_of(1).try_lock().is_ok());
    }
}
