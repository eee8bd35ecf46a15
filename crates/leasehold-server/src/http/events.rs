//! `/v1/events`: what is for sale.

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use http::{Request, StatusCode};
use leasehold_api::{Code, CreateEvent, EventList, EventView, PatchEvent, Problem, RowView, SectionView};
use leasehold_core::{Command, Name, SeatNo, UpdateEvent};
use leasehold_engine::Venue;

use super::{Write, aged, answer, json, millis, venue};
use crate::app::App;
use crate::body::{BODY_BYTES_MAX, EVENT_BYTES_MAX, parse, work_on};
use crate::problem::ApiError;
use crate::query::Query;
use crate::wire;

/// Events on one page.
const PAGE_MAX: usize = 100;
/// The rows of a larger venue are written where that keeps nobody else waiting.
const ROWS_AT_ONCE_MAX: usize = 1_000;

/// Creates an event with its seats and pools.
#[utoipa::path(post, path = "/v1/events", request_body = CreateEvent, tag = "events", responses(
    (status = 201, body = EventView), (status = 409, description = "event-exists", body = Problem)))]
pub(crate) async fn create(State(app): State<App>, request: Request<Body>) -> Result<Response, ApiError> {
    let write = Write::read(&app, request, EVENT_BYTES_MAX).await?;
    let body: CreateEvent = work_on(&write.body, |bytes| parse(bytes)).await?;
    // A known id is refused before its seats are laid out; a repetition with a key is for the engine.
    if write.key.is_none() && app.engine.venue(&body.id).await?.is_some() {
        return Err(ApiError::new(Code::EventExists));
    }
    // A large venue takes a while to lay out: not on a thread that serves others.
    let laid_out = tokio::task::spawn_blocking(move || wire::create_event(body));
    let command = laid_out.await.map_err(|_| ApiError::new(Code::OutcomeUnknown))??;
    let done = write.execute(&app, command, None).await?;
    if !done.replayed {
        tracing::info!(event = %done.venue.id, seats = done.venue.layout.seat_count(), "created an event");
    }
    Ok(answer(&app, &done, StatusCode::CREATED))
}

/// Lists events in the order of their creation.
#[utoipa::path(get, path = "/v1/events", tag = "events", params(
    ("after" = Option<String>, Query, description = "the last event of the page before"),
    ("limit" = Option<usize>, Query, description = "1 to 100")), responses((status = 200, body = EventList)))]
pub(crate) async fn list(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, ApiError> {
    let query = Query::parse(query.as_deref(), &["after", "limit"])?;
    let limit = query.number("limit", 1, PAGE_MAX as u64)?.map_or(PAGE_MAX, |limit| limit as usize);
    let after = query.text("after").map(Name::parse).transpose();
    let after = after.map_err(|bad| ApiError::invalid(format!("after {bad}")))?;
    let behind = app.engine.behind();
    let page = app.engine.events(after.as_ref(), limit).await?;
    let mut events: Vec<EventView> =
        page.items.iter().map(|(venue, summary)| wire::event_view(venue, summary)).collect();
    events.iter_mut().for_each(|event| event.stale_ms = millis(behind));
    let next = events.last().filter(|_| page.more).map(|event| event.id.clone());
    Ok(aged(json(StatusCode::OK, &EventList { events, next }), behind))
}

/// Reads an event with its venue.
#[utoipa::path(get, path = "/v1/events/{event}", tag = "events", params(
    ("event" = String, Path), ("seats" = Option<bool>, Query, description = "also list the seats' ids")),
    responses((status = 200, body = EventView), (status = 404, body = Problem)))]
pub(crate) async fn read(
    State(app): State<App>,
    Path(event): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let query = Query::parse(query.as_deref(), &["seats"])?;
    let with_seats = query.flag("seats")?;
    let venue = venue(&app, &event).await?;
    let behind = app.engine.behind();
    let summary = app.engine.event(&venue).await?;
    let mut view = wire::event_view(&venue, &summary);
    view.stale_ms = millis(behind);
    let is_large = with_seats || venue.layout.rows().len() > ROWS_AT_ONCE_MAX;
    let mut make = move || {
        view.sections = sections(&venue);
        if with_seats {
            let seat_id = |seat| venue.layout.seat_name(SeatNo(seat)).to_owned();
            view.seat_ids = (0..venue.layout.seat_count()).map(seat_id).collect();
        }
        json(StatusCode::OK, &view)
    };
    let made = if is_large { app.availability.aside(make).await? } else { make() };
    Ok(aged(made, behind))
}

/// Changes the rules, the capacities, or whether it sells.
#[utoipa::path(patch, path = "/v1/events/{event}", request_body = PatchEvent, tag = "events",
    params(("event" = String, Path)), responses((status = 200, body = EventView),
    (status = 404, body = Problem), (status = 409, description = "capacity-in-use", body = Problem)))]
pub(crate) async fn update(
    State(app): State<App>,
    Path(event): Path<String>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let write = Write::read(&app, request, BODY_BYTES_MAX).await?;
    let body: PatchEvent = parse(&write.body)?;
    let venue = venue(&app, &event).await?;
    let patch = wire::event_patch(&venue, &body)?;
    let command = Command::UpdateEvent(UpdateEvent { event: venue.number, patch });
    let done = write.execute(&app, command, Some(&venue)).await?;
    if !done.replayed {
        tracing::info!(event = %venue.id, "changed an event");
    }
    Ok(answer(&app, &done, StatusCode::OK))
}

pub(crate) fn sections(venue: &Venue) -> Vec<SectionView> {
    let layout = &venue.layout;
    let section = |section: &leasehold_core::Section| {
        let rows = layout.rows()[section.rows.start as usize..section.rows.end as usize].iter().map(|row| {
            RowView { name: row.name.clone(), first: row.seats.start, count: row.seats.end - row.seats.start }
        });
        SectionView { name: section.name.clone(), rows: rows.collect() }
    };
    layout.sections().iter().map(section).collect()
}
