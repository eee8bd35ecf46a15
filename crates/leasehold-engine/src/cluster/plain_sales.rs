//! Plain sales: live holds that are confirmed as a whole, decided by the ledger itself, many with one call.
//!
//! What is not plain (a part of a hold, one that is over or sold, another payment than the one under way, a repetition)
//! goes to the [desk](super::desk).

use std::sync::Arc;

use leasehold_core::{Booking, BookingState, Command, ConfirmHold, EventNo, Kind, Reference, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::connection::{CALL_TIME_MAX, CallError, Connection, at_commit, within};
use super::desk::{Carried, Job};
use super::follower::{Answer, News};
use super::plain_holds::Decided;
use super::rows::{items_of, time};
use super::shared::Shared;
use super::wants::{booking_id, hold_id};
use crate::bytes::Damaged;
use crate::{Done, EngineError, Outcome};

/// Whether the ledger may decide it alone.
pub(crate) fn is_plain_sale(command: &Command) -> bool {
    matches!(command, Command::ConfirmHold(ConfirmHold { items: None, .. }))
}

/// Has the ledger decide all of them, which are plain sales, with one call.
pub(crate) async fn sell(connection: &Connection, shared: &Shared, jobs: Vec<Job>) -> Decided {
    let rows = match send(connection, &jobs).await {
        Ok(rows) => rows,
        Err(error) => {
            let failure = at_commit(&error);
            tracing::warn!(%error, ?failure, sales = jobs.len(), "a call of the ledger failed");
            return Decided { carried: Carried::Failed(failure, jobs), undecided: Vec::new() };
        }
    };
    shared.sight.note_up(true);
    let mut news = News::default();
    let mut undecided = Vec::new();
    let mut jobs: Vec<Option<Job>> = jobs.into_iter().map(Some).collect();
    for row in &rows {
        let place = usize::try_from(row.get::<_, i32>(0) - 1).unwrap_or(usize::MAX);
        let Some(job) = jobs.get_mut(place).and_then(Option::take) else { continue };
        if row.get::<_, i16>(1) != 0 {
            undecided.push(job);
            continue;
        }
        shared.note_time(time(row.get(2)));
        shared.meters.count(Kind::BookingCreated);
        news.versions.push((row.get(4), row.get::<_, i64>(3).unsigned_abs()));
        let answer = answer(connection, shared, &job, row).await;
        news.answers.push((job.reply, answer) as Answer);
    }
    // The readers must know the last version of each event before anyone is told.
    news.versions.sort_unstable_by(|one, other| other.cmp(one));
    news.versions.dedup_by_key(|(event, _)| *event);
    Decided { carried: Carried::Out(news), undecided }
}

async fn send(connection: &Connection, jobs: &[Job]) -> Result<Vec<Row>, CallError> {
    let (mut holds, mut bookings, mut payments, mut orders) = (vec![], vec![], vec![], vec![]);
    let (mut scopes, mut fingerprints) = (vec![], vec![]);
    for job in jobs {
        let Command::ConfirmHold(confirm) = &job.request.command else { unreachable!("only sales are sold") };
        holds.push(hold_id(confirm.hold));
        bookings.push(booking_id(confirm.booking));
        payments.push(confirm.payment_ref.as_ref().map(Reference::as_str));
        orders.push(confirm.order_ref.as_ref().map(Reference::as_str));
        scopes.push(job.request.key.map(|key| Uuid::from_u128(key.scope)));
        fingerprints.push(job.request.key.map(|key| Uuid::from_u128(key.fingerprint)));
    }
    let arguments: [&(dyn ToSql + Sync); 6] = [&holds, &bookings, &payments, &orders, &scopes, &fingerprints];
    within(CALL_TIME_MAX, connection.client.query(&connection.confirm, &arguments)).await
}

/// The answer to a sale that was made. It is made, whatever comes now: a caller that asks again finds it.
async fn answer(connection: &Connection, shared: &Shared, job: &Job, row: &Row) -> Result<Done, EngineError> {
    let hall = shared.halls.get(&connection.client, row.get(4)).await;
    let booking = booking(job, row);
    match (hall, booking) {
        (Ok(Some(hall)), Ok(booking)) => Ok(Done {
            at: booking.booked_at,
            outcome: Outcome::Booking(booking),
            venue: Arc::clone(&hall.venue),
            replayed: false,
        }),
        (Err(error), _) => {
            tracing::error!(%error, "the event of a sale that was made cannot be read");
            Err(EngineError::Unknown)
        }
        (Ok(None), _) | (_, Err(Damaged)) => Err(EngineError::Unknown),
    }
}

fn booking(job: &Job, row: &Row) -> Result<Booking, Damaged> {
    let Command::ConfirmHold(confirm) = &job.request.command else { unreachable!("only sales are sold") };
    let holder: Option<&str> = row.get(6);
    Ok(Booking {
        id: confirm.booking,
        number: row.get::<_, i64>(3).unsigned_abs(),
        event: EventNo(row.get::<_, i32>(4).cast_unsigned()),
        hold: confirm.hold,
        state: BookingState::Booked,
        items: items_of(&row.get::<_, Vec<i64>>(5))?,
        holder: holder.map(|holder| Reference::parse(holder).map_err(|_| Damaged)).transpose()?,
        payment_ref: confirm.payment_ref.clone(),
        order_ref: confirm.order_ref.clone(),
        revived: false,
        booked_at: time(row.get(2)),
        cancelled_at: Timestamp::NEVER,
    })
}
