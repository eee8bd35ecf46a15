//! `/v1/events/{event}/venue`: what never changes of an event: its sections, rows and seats, for drawing.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use leasehold_api::{Problem, VenueView};
use leasehold_core::SeatNo;
use leasehold_engine::Venue;

use super::{Encoded, Kept, venue};
use crate::app::App;
use crate::problem::ApiError;

/// Answers that are ready to be sent. A venue never changes, so neither do they.
#[derive(Debug, Default)]
pub(crate) struct VenueCache {
    ready: Kept<Encoded>,
    making: tokio::sync::Mutex<()>,
}

/// Reads what never changes of an event.
#[utoipa::path(get, path = "/v1/events/{event}/venue", tag = "events", params(("event" = String, Path)),
    responses((status = 200, body = VenueView), (status = 304), (status = 404, body = Problem)))]
pub(crate) async fn read(
    State(app): State<App>,
    Path(event): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let venue = venue(&app, &event).await?;
    Ok(app.venues.ready(&venue).await.response(&headers, "application/json"))
}

impl VenueCache {
    async fn ready(&self, venue: &Arc<Venue>) -> Arc<Encoded> {
        if let Some(ready) = self.ready.get(venue.number) {
            return ready;
        }
        // One at a time: a large venue takes a while to compress, and all who ask at once share it.
        let _one_at_a_time = self.making.lock().await;
        if let Some(ready) = self.ready.get(venue.number) {
            return ready;
        }
        let made = {
            let venue = Arc::clone(venue);
            tokio::task::spawn_blocking(move || Arc::new(make(&venue)))
        };
        let ready = made.await.unwrap_or_else(|_| Arc::new(make(venue)));
        self.ready.put(venue.number, Arc::clone(&ready));
        ready
    }
}

fn make(venue: &Venue) -> Encoded {
    let seats = (0..venue.layout.seat_count()).map(|seat| venue.layout.seat_name(SeatNo(seat)).to_owned());
    let view = VenueView {
        event: venue.id.to_string(),
        name: venue.name.as_str().to_owned(),
        sections: super::events::sections(venue),
        seat_ids: seats.collect(),
        pools: venue.pools.iter().map(ToString::to_string).collect(),
    };
    let body = serde_json::to_vec(&view).expect("wire types have string keys and no failing serializers");
    Encoded::new(body.into())
}
