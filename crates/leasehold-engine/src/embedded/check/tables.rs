//! The tables against the state, in all that they claim to show.
//!
//! Whoever reads them with a tool of their own sees the columns, and a start the images. Both must say the same.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Debug;

use leasehold_core::{BlockSlot, BookingSlot, EventNo, HoldSlot, PoolNo, Reference, SeatNo, State, Touched};
use rusqlite::Connection;

use crate::embedded::projection::{booking_state, event_state, payment_state, seat_state};

/// What the journal's tail changed: the tables show it as it was, and that is in order.
#[derive(Default)]
pub(super) struct Behind {
    seats: HashSet<(EventNo, SeatNo)>,
    pools: HashSet<(EventNo, PoolNo)>,
    holds: HashSet<HoldSlot>,
    bookings: HashSet<BookingSlot>,
    blocks: HashSet<BlockSlot>,
    payments: HashSet<(EventNo, Reference)>,
    events: BTreeSet<EventNo>,
    /// Events from this one on may be in the tables in part.
    venues: u32,
}

impl Behind {
    pub(super) fn of(touched: Vec<Touched>, events: BTreeSet<EventNo>, venues: u32) -> Self {
        let mut behind = Self { events, venues, ..Self::default() };
        for touched in touched {
            match touched {
                Touched::Seat(event, seat, ..) => drop(behind.seats.insert((event, seat))),
                Touched::Pool(event, pool, _) => drop(behind.pools.insert((event, pool))),
                Touched::Hold(slot) => drop(behind.holds.insert(slot)),
                Touched::Booking(slot) => drop(behind.bookings.insert(slot)),
                Touched::Block(slot) | Touched::BlockGone(slot) => drop(behind.blocks.insert(slot)),
                Touched::Payment(event, reference) => drop(behind.payments.insert((event, reference))),
                Touched::Event(_) | Touched::Reason(_) => {}
            }
        }
        behind
    }

    fn is_new(&self, event: u32) -> bool {
        event >= self.venues
    }
}

pub(super) fn check(
    connection: &Connection,
    state: &State,
    behind: &Behind,
    problems: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let mut counts = vec![Rows::default(); state.events().len()];
    check_events(connection, state, behind, &mut counts, problems)?;
    check_seats(connection, state, behind, &mut counts, problems)?;
    check_pools(connection, state, behind, &mut counts, problems)?;
    for (event, rows) in state.events().iter().zip(counts) {
        let (seats, pools) = (event.layout.seat_count(), event.pools().len());
        if behind.is_new(event.number.0) {
            continue;
        }
        if (rows.seats, rows.pools) != (seats, pools) {
            problems.push(format!(
                "{}: the tables have {} seats and {} pools, the event has {seats} and {pools}",
                event.id, rows.seats, rows.pools
            ));
        }
        if rows.events == 0 {
            problems.push(format!("{}: it is not in the table of events", event.id));
        }
    }
    check_holds(connection, state, behind, problems)?;
    check_bookings(connection, state, behind, problems)?;
    check_blocks(connection, state, behind, problems)?;
    check_payments(connection, state, behind, problems)
}

/// How many rows an event has.
#[derive(Default, Clone)]
struct Rows {
    events: u32,
    seats: u32,
    pools: usize,
}

fn compare<T: PartialEq + Debug>(
    thing: &str,
    found: &T,
    expected: Option<&T>,
    is_behind: bool,
    problems: &mut Vec<String>,
) {
    if is_behind || expected == Some(found) {
        return;
    }
    problems.push(match expected {
        Some(expected) => format!("{thing} is {found:?} in the table, and {expected:?} by its image"),
        None => format!("{thing} is {found:?} in the table, and nowhere else"),
    });
}

fn check_events(
    connection: &Connection,
    state: &State,
    behind: &Behind,
    counts: &mut [Rows],
    problems: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT event_no, id, name, state, version FROM events")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let number: u32 = row.get(0)?;
        counts.get_mut(number as usize).into_iter().for_each(|rows| rows.events += 1);
        let found: (String, String, String, u64) = (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
        let expected = state.event(EventNo(number)).map(|event| {
            let (id, name) = (event.id.to_string(), event.name.as_str().to_owned());
            (id, name, event_state(event.state).to_owned(), event.version)
        });
        let is_behind = behind.is_new(number) || behind.events.contains(&EventNo(number));
        compare(&format!("events: {}", found.0), &found, expected.as_ref(), is_behind, problems);
    }
    Ok(())
}

fn check_seats(
    connection: &Connection,
    state: &State,
    behind: &Behind,
    counts: &mut [Rows],
    problems: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT event_no, seat_no, seat, state, fence FROM seats")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (event, place): (u32, u32) = (row.get(0)?, row.get(1)?);
        counts.get_mut(event as usize).into_iter().for_each(|rows| rows.seats += 1);
        let known = state.event(EventNo(event));
        let seat = known.and_then(|event| event.seats().get(place as usize));
        let (name, status, fence): (String, String, u64) = (row.get(2)?, row.get(3)?, row.get(4)?);
        let agrees = seat.is_some_and(|seat| {
            seat_state(seat.owner.status()) == status
                && seat.fence.0 == fence
                && known.is_some_and(|event| event.layout.seat_name(SeatNo(place)) == name)
        });
        let is_behind = behind.is_new(event) || behind.seats.contains(&(EventNo(event), SeatNo(place)));
        if !agrees && !is_behind {
            problems.push(format!(
                "seats: {name} is {status} with fence {fence} in the table, {seat:?} by its owner"
            ));
        }
    }
    Ok(())
}

fn check_pools(
    connection: &Connection,
    state: &State,
    behind: &Behind,
    counts: &mut [Rows],
    problems: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare("SELECT event_no, pool_no, pool, capacity, held, sold, blocked FROM pools")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (event, place): (u32, u32) = (row.get(0)?, row.get(1)?);
        counts.get_mut(event as usize).into_iter().for_each(|rows| rows.pools += 1);
        let pool = state.event(EventNo(event)).and_then(|event| event.pools().get(place as usize));
        let name: String = row.get(2)?;
        let units: (u32, u32, u32, u32) = (row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?);
        let agrees = pool.is_some_and(|pool| {
            pool.id.as_str() == name && (pool.capacity, pool.held, pool.sold, pool.blocked) == units
        });
        let is_behind = behind.is_new(event) || behind.pools.contains(&(EventNo(event), PoolNo(place)));
        if !agrees && !is_behind {
            problems.push(format!("pools: {name} has {units:?} in the table, {pool:?} by its owners"));
        }
    }
    Ok(())
}

fn check_holds(
    connection: &Connection,
    state: &State,
    behind: &Behind,
    problems: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare("SELECT slot, id, event_no, state, holder, expires_at FROM holds")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        type Row = (String, u32, String, Option<String>, u64);
        let slot = HoldSlot(row.get(0)?);
        let found: Row = (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?);
        let expected = state.hold_at(slot).map(|hold| {
            let (id, state) = (hold.id.to_string(), hold.state.as_str().to_owned());
            (id, hold.event.0, state, owned(hold.holder.as_ref()), hold.expires_at.as_millis())
        });
        let is_behind = behind.holds.contains(&slot);
        compare(&format!("holds: {}", found.0), &found, expected.as_ref(), is_behind, problems);
    }
    Ok(())
}

fn check_bookings(
    connection: &Connection,
    state: &State,
    behind: &Behind,
    problems: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare("SELECT slot, id, event_no, state, holder, payment_ref, order_ref FROM bookings")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        type Row = (String, u32, String, [Option<String>; 3]);
        let slot = BookingSlot(row.get(0)?);
        let references = [row.get(4)?, row.get(5)?, row.get(6)?];
        let found: Row = (row.get(1)?, row.get(2)?, row.get(3)?, references);
        let expected = state.booking_at(slot).map(|booking| {
            let references = [&booking.holder, &booking.payment_ref, &booking.order_ref];
            let references = references.map(|reference| owned(reference.as_ref()));
            let (id, state) = (booking.id.to_string(), booking_state(booking.state).to_owned());
            (id, booking.event.0, state, references)
        });
        let is_behind = behind.bookings.contains(&slot);
        compare(&format!("bookings: {}", found.0), &found, expected.as_ref(), is_behind, problems);
    }
    Ok(())
}

fn check_blocks(
    connection: &Connection,
    state: &State,
    behind: &Behind,
    problems: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT slot, id, event_no FROM blocks")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let slot = BlockSlot(row.get(0)?);
        let found: (String, u32) = (row.get(1)?, row.get(2)?);
        let expected = state.block_at(slot).map(|block| (block.id.to_string(), block.event.0));
        let is_behind = behind.blocks.contains(&slot);
        compare(&format!("blocks: {}", found.0), &found, expected.as_ref(), is_behind, problems);
    }
    Ok(())
}

fn check_payments(
    connection: &Connection,
    state: &State,
    behind: &Behind,
    problems: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT event_no, payment_ref, state FROM payments")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (event, name): (u32, String) = (row.get(0)?, row.get(1)?);
        let found: String = row.get(2)?;
        let key = Reference::parse(&name).ok().map(|reference| (EventNo(event), reference));
        let expected = key.as_ref().and_then(|(event, reference)| state.payment(*event, reference));
        let expected = expected.map(|payment| payment_state(payment.state).to_owned());
        let is_behind = key.is_some_and(|key| behind.payments.contains(&key));
        compare(&format!("payments: {name}"), &found, expected.as_ref(), is_behind, problems);
    }
    Ok(())
}

fn owned(reference: Option<&Reference>) -> Option<String> {
    reference.map(|reference| reference.as_str().to_owned())
}
