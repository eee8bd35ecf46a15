//! `/v1/operator`: what only operators may read. `operators` sees to that before a request gets here.

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use http::StatusCode;
use leasehold_api::{
    LogEntryView, LogView, Problem, ReplicaList, ReplicaView, SeatOwnerView, TroubleList, TroubleView,
};
use leasehold_core::{Epoch, HoldId, Reference, SeatNo};
use leasehold_engine::{About, Change, LogPage, LogQuery, SeatOwner, SeatUpdate, Venue, Version};

use super::availability::version_seen;
use super::{json, millis, private, venue};
use crate::app::App;
use crate::problem::ApiError;
use crate::query::Query;
use crate::wire;

/// Entries on one page.
const ENTRIES_MAX: usize = 500;
const ENTRIES_DEFAULT: usize = 50;
/// Seats of one entry; a block can have thousands.
const SEATS_PER_ENTRY_MAX: usize = 1_000;
const SUBJECTS: [&str; 4] = ["seat", "hold", "holder", "order"];

/// Reads an event's log: what happened to a seat, a hold, a holder's holds or an order, newest first.
#[utoipa::path(get, path = "/v1/operator/events/{event}/log", tag = "operating", params(("event" = String, Path),
    ("seat" = Option<String>, Query, description = "only what happened to this seat"),
    ("hold" = Option<String>, Query, description = "only what happened to this hold"),
    ("holder" = Option<String>, Query, description = "only what happened to the holds of this holder"),
    ("order" = Option<String>, Query, description = "only what belongs to this `order_ref` or `payment_ref`"),
    ("before" = Option<String>, Query, description = "`next` of the page before"),
    ("limit" = Option<usize>, Query, description = "1 to 500")),
    responses((status = 200, body = LogView), (status = 404, body = Problem),
    (status = 422, description = "invalid", body = Problem)))]
pub(crate) async fn log(
    State(app): State<App>,
    Path(event): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let query = Query::parse(query.as_deref(), &["seat", "hold", "holder", "order", "before", "limit"])?;
    let venue = venue(&app, &event).await?;
    let limit = query.number("limit", 1, ENTRIES_MAX as u64)?.map_or(ENTRIES_DEFAULT, |limit| limit as usize);
    let about = subject(&query, &venue)?;
    let epoch = app.engine.event(&venue).await?.version.epoch;
    let before = match query.text("before") {
        None => None,
        Some(text) => Some(version_seen(&app, &venue, text).await?),
    };
    if before.is_some_and(|version| version.epoch != epoch) {
        return Err(ApiError::invalid("that version is of another epoch, whose log is gone"));
    }
    let before = before.map(|version| version.number);
    let seat = if let About::Seat(seat) = about { Some(seat) } else { None };
    let page = app.engine.log(&venue, LogQuery { about, before, limit }).await?;
    Ok(private(json(StatusCode::OK, &view(&app, &venue, &page, seat, epoch))))
}

/// Reads what went wrong since the server was started: its own errors, and answers that took long.
#[utoipa::path(get, path = "/v1/operator/problems", tag = "operating", responses((status = 200, body = TroubleList)))]
pub(crate) async fn problems(State(app): State<App>) -> Response {
    let problems = app.troubles.all().into_iter().map(|trouble| TroubleView {
        at: wire::time(trouble.at),
        method: trouble.method,
        path: trouble.path,
        status: trouble.status,
        code: trouble.code.map(str::to_owned),
        took_ms: trouble.seconds * 1_000.0,
        request_id: trouble.request_id,
    });
    private(json(StatusCode::OK, &TroubleList { problems: problems.collect() }))
}

/// Lists the servers on the ledger; none for a server on a data file.
#[utoipa::path(get, path = "/v1/operator/replicas", tag = "operating", responses(
    (status = 200, body = ReplicaList), (status = 503, description = "the ledger is gone", body = Problem)))]
pub(crate) async fn replicas(State(app): State<App>) -> Result<Response, ApiError> {
    let replicas = app.engine.replicas().await?.into_iter().map(|replica| ReplicaView {
        id: replica.id,
        version: replica.version,
        listens_on: replica.listens_on,
        connects_from: replica.connects_from,
        quiet_ms: millis(replica.quiet_for),
        is_this: replica.is_this,
    });
    Ok(private(json(StatusCode::OK, &ReplicaList { replicas: replicas.collect() })))
}

/// What is asked about: one thing, or anything.
fn subject(query: &Query<'_>, venue: &Venue) -> Result<About, ApiError> {
    let mut given = SUBJECTS.iter().filter_map(|name| Some((*name, query.text(name)?)));
    let Some((name, _)) = given.next() else { return Ok(About::Everything) };
    if given.next().is_some() {
        return Err(ApiError::invalid("give one of seat, hold, holder and order"));
    }
    let text = query.decoded(name)?.unwrap_or_default();
    let reference = || Reference::parse(&text).map_err(|bad| ApiError::bad_name(name, bad));
    Ok(match name {
        "seat" => About::Seat(venue.layout.seat(&text).ok_or_else(ApiError::not_found)?),
        "hold" => About::Hold(HoldId::parse(&text).ok_or_else(ApiError::not_found)?),
        "holder" => About::Holder(reference()?),
        _ => About::Order(reference()?),
    })
}

fn view(app: &App, venue: &Venue, page: &LogPage, asked: Option<SeatNo>, epoch: Epoch) -> LogView {
    let version = |number| Version { epoch, number }.to_string();
    let now = app.engine.now();
    LogView {
        event: venue.id.to_string(),
        entries: page.entries.iter().map(|change| entry(venue, change, asked)).collect(),
        holds: page.holds.iter().map(|hold| wire::hold_view(venue, hold, now)).collect(),
        bookings: page.bookings.iter().map(|booking| wire::booking_view(venue, booking)).collect(),
        blocks: page.blocks.iter().map(|block| wire::block_view(venue, block)).collect(),
        owner: page.owner.map(|owner| match owner {
            SeatOwner::Hold(hold) => SeatOwnerView { hold_id: Some(hold.to_string()), ..Default::default() },
            SeatOwner::Booking(booking) => {
                SeatOwnerView { booking_id: Some(booking.to_string()), ..Default::default() }
            }
            SeatOwner::Block(block) => {
                SeatOwnerView { block_id: Some(block.to_string()), ..Default::default() }
            }
        }),
        looked_back_to: page.looked_back_to.map(version),
        next: page.looked_back_to.filter(|_| page.more).map(version),
    }
}

fn entry(venue: &Venue, change: &Change, asked: Option<SeatNo>) -> LogEntryView {
    // The seat that is asked about is always among those shown.
    let (first, others): (Vec<&SeatUpdate>, Vec<&SeatUpdate>) =
        change.seats.iter().partition(|update| asked.is_some_and(|seat| seat == update.seat));
    let seats = first.into_iter().chain(others).take(SEATS_PER_ENTRY_MAX).map(|update| {
        (venue.layout.seat_name(update.seat).to_owned(), wire::letter(update.status).to_string())
    });
    let pools = change
        .pools
        .iter()
        .map(|(pool, counts)| wire::pool_count(venue.pools[pool.0 as usize].as_str(), counts));
    LogEntryView {
        version: change.version.to_string(),
        at: wire::time(change.at),
        kind: change.kind.as_str().to_owned(),
        hold_id: change.hold.map(|hold| hold.to_string()),
        reason: change.reason.as_ref().map(|reason| reason.as_str().to_owned()),
        seats: seats.collect(),
        seats_left_out: change.seats.len().saturating_sub(SEATS_PER_ENTRY_MAX),
        pools: pools.collect(),
    }
}
