//! Reads that go to the ledger: holds, bookings, lists, answers.

use std::sync::Arc;

use leasehold_core::{Block, BookingId, Hold, HoldId, Name, Reference};
use tokio_postgres::Client;

use super::connection::{CALL_TIME_MAX, CallError, within};
use super::create::read_answer;
use super::halls::Halls;
use super::rows::{AnswerRow, BlockRow, BookingRow, HoldRow, time};
use super::wants::{booking_id, hold_id};
use crate::bytes::Damaged;
use crate::{Done, IdempotencyKey, Outcome, Page, RefundsDue, Venue};

/// The numbers of events after the one with this id.
pub(crate) async fn events(
    client: &Client,
    after: Option<&Name>,
    limit: usize,
) -> Result<Page<i32>, CallError> {
    let sql = "SELECT no FROM leasehold.events WHERE no > CASE
                   WHEN $1::text IS NULL THEN -1
                   ELSE coalesce((SELECT no FROM leasehold.events WHERE id = $1), 2147483647) END
               ORDER BY no LIMIT $2";
    let (after, one_more) = (after.map(Name::as_str), one_more(limit));
    let rows = within(CALL_TIME_MAX, client.query(sql, &[&after, &one_more])).await?;
    Ok(page(rows.iter().map(|row| row.get(0)).collect(), limit))
}

/// A hold as it is at this moment.
pub(crate) async fn hold(client: &Client, halls: &Halls, hold: HoldId) -> Result<Option<Done>, CallError> {
    let sql = "SELECT row_to_json(hold)::text, leasehold.now_ms() FROM leasehold.holds AS hold WHERE id = $1";
    let row = within(CALL_TIME_MAX, client.query_opt(sql, &[&hold_id(hold)])).await?;
    let Some(row) = row else { return Ok(None) };
    let (hold, now): (HoldRow, _) = (serde_json::from_str(row.get(0))?, time(row.get(1)));
    let Some(hall) = halls.get(client, hold.event_no).await? else { return Ok(None) };
    let hold = hold.hold_at(hall.venue.number, now)?;
    let venue = Arc::clone(&hall.venue);
    Ok(Some(Done { outcome: Outcome::Hold(hold), venue, at: now, replayed: false }))
}

/// A booking.
pub(crate) async fn booking(
    client: &Client,
    halls: &Halls,
    booking: BookingId,
) -> Result<Option<Done>, CallError> {
    let sql = "SELECT row_to_json(booking)::text, leasehold.now_ms()
               FROM leasehold.bookings AS booking WHERE id = $1";
    let row = within(CALL_TIME_MAX, client.query_opt(sql, &[&booking_id(booking)])).await?;
    let Some(row) = row else { return Ok(None) };
    let (booking, now): (BookingRow, _) = (serde_json::from_str(row.get(0))?, time(row.get(1)));
    let Some(hall) = halls.get(client, booking.event_no).await? else { return Ok(None) };
    let outcome = Outcome::Booking(booking.booking(hall.venue.number)?);
    Ok(Some(Done { outcome, venue: Arc::clone(&hall.venue), at: now, replayed: false }))
}

/// The live holds of an event after a place.
pub(crate) async fn holds(
    client: &Client,
    venue: &Venue,
    after: u64,
    limit: usize,
) -> Result<Page<(u64, Hold)>, CallError> {
    let sql = "SELECT place, row_to_json(hold)::text FROM leasehold.holds AS hold
               WHERE event_no = $1 AND state <= 1 AND place > $2
                 AND (live_until IS NULL OR live_until > leasehold.now_ms())
               ORDER BY place LIMIT $3";
    let (number, after, one_more) = (venue.number.0.cast_signed(), place(after), one_more(limit));
    let rows = within(CALL_TIME_MAX, client.query(sql, &[&number, &after, &one_more])).await?;
    let holds = rows.iter().map(|row| {
        let hold: HoldRow = serde_json::from_str(row.get(1))?;
        Ok((row.get::<_, i64>(0).unsigned_abs(), hold.hold(venue.number)?))
    });
    Ok(page(holds.collect::<Result<_, CallError>>()?, limit))
}

/// What is kept back from an event's sale, after a place, which is the number of the log entry that made it.
pub(crate) async fn blocks(
    client: &Client,
    venue: &Venue,
    after: u64,
    limit: usize,
) -> Result<Page<(u64, Block)>, CallError> {
    let sql = "SELECT row_to_json(block)::text FROM leasehold.blocks AS block
               WHERE event_no = $1 AND number > $2 ORDER BY number LIMIT $3";
    let (number, after, one_more) = (venue.number.0.cast_signed(), place(after), one_more(limit));
    let rows = within(CALL_TIME_MAX, client.query(sql, &[&number, &after, &one_more])).await?;
    let blocks = rows.iter().map(|row| {
        let block = serde_json::from_str::<BlockRow>(row.get(0))?.block(venue.number)?;
        Ok((block.number, block))
    });
    Ok(page(blocks.collect::<Result<_, CallError>>()?, limit))
}

/// The payments of an event that must be given back, by hold, after a place.
pub(crate) async fn refunds(
    client: &Client,
    venue: &Venue,
    after: u64,
    limit: usize,
) -> Result<Page<(u64, RefundsDue)>, CallError> {
    let sql = "SELECT hold.place, hold.id, hold.holder, array_agg(payment.reference ORDER BY payment.number)
               FROM leasehold.payments AS payment JOIN leasehold.holds AS hold ON hold.id = payment.hold
               WHERE payment.event_no = $1 AND payment.state = 2 AND hold.state > 1 AND hold.place > $2
               GROUP BY hold.place, hold.id, hold.holder ORDER BY hold.place LIMIT $3";
    let (number, after, one_more) = (venue.number.0.cast_signed(), place(after), one_more(limit));
    let rows = within(CALL_TIME_MAX, client.query(sql, &[&number, &after, &one_more])).await?;
    let reference = |text: &str| Reference::parse(text).map_err(|_| Damaged);
    let refunds = rows.iter().map(|row| {
        let payments: Vec<String> = row.get(3);
        let due = RefundsDue {
            hold: HoldId::from_raw(row.get::<_, uuid::Uuid>(1).as_u128()).ok_or(Damaged)?,
            holder: row.get::<_, Option<&str>>(2).map(reference).transpose()?,
            payments: payments.iter().map(|text| reference(text)).collect::<Result<_, _>>()?,
        };
        Ok((row.get::<_, i64>(0).unsigned_abs(), due))
    });
    Ok(page(refunds.collect::<Result<_, CallError>>()?, limit))
}

/// The row that remembers an answer, with its event's hall loaded.
pub(crate) async fn answer(
    client: &Client,
    halls: &Halls,
    key: &IdempotencyKey,
) -> Result<Option<AnswerRow>, CallError> {
    let Some(row) = read_answer(client, key).await? else { return Ok(None) };
    halls.get(client, row.event_no).await?;
    Ok(Some(row))
}

fn place(after: u64) -> i64 {
    i64::try_from(after).unwrap_or(i64::MAX)
}

/// One more than is asked for shows whether there are more.
fn one_more(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX - 1) + 1
}

fn page<T>(mut items: Vec<T>, limit: usize) -> Page<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    Page { items, more }
}
