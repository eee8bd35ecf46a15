//! Answers from the log: what happened to a seat, a hold, a holder's holds or an order.

use std::collections::BTreeSet;
use std::sync::Arc;

use leasehold_core::{Epoch, HoldId};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::connection::{CALL_TIME_MAX, CallError, within};
use super::halls::change;
use super::rows::{BlockRow, BookingRow, HoldRow};
use super::wants::{hold_id, number};
use crate::bytes::Damaged;
use crate::{About, LogPage, LogQuery, SeatOwner, Venue};

/// Entries that one question looks through.
const ENTRIES_MAX: i64 = 100_000;

pub(crate) async fn look_back(
    client: &Client,
    venue: &Venue,
    epoch: Epoch,
    query: &LogQuery,
) -> Result<LogPage, CallError> {
    let event = number(venue.number);
    let bounds =
        "SELECT coalesce(min(version), 0), coalesce(max(version), 0) FROM leasehold.log WHERE event_no = $1";
    let row = within(CALL_TIME_MAX, client.query_one(bounds, &[&event])).await?;
    let (first, last): (i64, i64) = (row.get(0), row.get(1));
    let before =
        query.before.map_or(last + 1, |before| i64::try_from(before).unwrap_or(i64::MAX).min(last + 1));
    let after = (before - 1 - ENTRIES_MAX).max(0);

    let (mut seat, mut hold, mut holder, mut order) = (None, None, None, None);
    match &query.about {
        About::Everything => {}
        About::Seat(number) => seat = Some(number.0.cast_signed()),
        About::Hold(id) => hold = Some(hold_id(*id)),
        About::Holder(reference) => holder = Some(reference.as_str()),
        About::Order(reference) => order = Some(reference.as_str()),
    }
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let sql = include_str!("sql/history.sql");
    let what: [&(dyn ToSql + Sync); 8] = [&event, &before, &after, &limit, &seat, &hold, &holder, &order];
    let rows = within(CALL_TIME_MAX, client.query(sql, &what)).await?;
    let entries = rows.iter().map(|row| Ok(Arc::new(change(row, 0, epoch)?.0)));
    let mut page = LogPage { entries: entries.collect::<Result<_, CallError>>()?, ..LogPage::default() };

    // A full page ends at its last entry; any other at the end of what was looked through.
    let looked_back_to = match page.entries.last() {
        Some(oldest) if page.entries.len() == query.limit => oldest.version.number.cast_signed(),
        _ => first.max(after + 1),
    };
    if looked_back_to < before {
        page.looked_back_to = Some(looked_back_to.unsigned_abs());
        page.more = first < looked_back_to;
    }
    describe(client, venue, seat, page).await
}

/// Adds how the things stand that the entries are about.
async fn describe(
    client: &Client,
    venue: &Venue,
    seat: Option<i32>,
    mut page: LogPage,
) -> Result<LogPage, CallError> {
    let holds: BTreeSet<HoldId> = page.entries.iter().filter_map(|change| change.hold).collect();
    let holds: Vec<Uuid> = holds.into_iter().map(hold_id).collect();
    let (sql, event) = (include_str!("sql/described.sql"), number(venue.number));
    for row in within(CALL_TIME_MAX, client.query(sql, &[&event, &holds, &seat])).await? {
        let (kind, has_the_seat, text): (&str, bool, &str) = (row.get(0), row.get(1), row.get(2));
        let owner = match kind {
            "hold" => {
                let hold = serde_json::from_str::<HoldRow>(text)?.hold(venue.number)?;
                let owner = SeatOwner::Hold(hold.id);
                page.holds.push(hold);
                owner
            }
            "booking" => {
                let booking = serde_json::from_str::<BookingRow>(text)?.booking(venue.number)?;
                let owner = SeatOwner::Booking(booking.id);
                page.bookings.push(booking);
                owner
            }
            "block" => {
                let block = serde_json::from_str::<BlockRow>(text)?.block(venue.number)?;
                let owner = SeatOwner::Block(block.id);
                page.blocks.push(block);
                owner
            }
            _ => return Err(Damaged.into()),
        };
        if has_the_seat {
            page.owner = Some(owner);
        }
    }
    Ok(page)
}
