//! Looks through a data file without changing it, and recomputes everything.

mod tables;

use std::collections::BTreeSet;
use std::path::Path;

use leasehold_core::{BookingState, Epoch, EventNo, Item, SeatNo, State, Timestamp, invariants};
use rusqlite::Connection;

use self::tables::Behind;
use super::OpenError;
use super::load::{Tables, load};
use super::store::Store;
use crate::answer::get_answer;

/// What was found in a data file.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Everything that should not be so, one sentence each.
    pub problems: Vec<String>,
    /// Events in the file.
    pub events: usize,
    /// Seats in the file.
    pub seats: u64,
    /// Holds that keep something.
    pub holds: usize,
    /// Sales that stand.
    pub bookings: usize,
    /// The number of the last log entry.
    pub entries: u64,
    /// Entries that the tables do not show yet.
    pub behind: u64,
}

/// Opens a data file for reading only, recomputes everything, and lists each broken invariant.
///
/// A running server does not mind.
pub fn check_file(path: &Path) -> Result<CheckReport, OpenError> {
    let at = |source| OpenError::Sqlite { path: path.to_owned(), source };
    if !path.exists() {
        let source = std::io::ErrorKind::NotFound.into();
        return Err(OpenError::Io { path: path.to_owned(), source });
    }
    let connection = Store::reader(path).map_err(at)?;
    // One transaction, so that a running server cannot move things between two looks.
    connection.execute_batch("BEGIN").map_err(at)?;
    let mut report = CheckReport::default();
    report.problems.extend(sqlite_findings(&connection).map_err(at)?);
    let loaded = match load(&connection, path, Epoch::FIRST) {
        Ok(loaded) => loaded,
        Err(OpenError::Damaged { what, .. }) => {
            report.problems.push(what);
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    let state = loaded.state;
    report.events = state.events().len();
    report.seats = state.events().iter().map(|event| u64::from(event.layout.seat_count())).sum();
    report.holds = state.holds().filter(|(_, hold)| hold.keeps_items()).count();
    report.bookings = state.bookings().filter(|(_, booking)| booking.state == BookingState::Booked).count();
    report.entries = state.seq();
    report.behind = state.seq() - Tables::of(&connection).map_err(at)?.floor;
    let broken = invariants::check(&state);
    report.problems.extend(broken.into_iter().map(|broken| format!("{}: {}", broken.invariant, broken.what)));
    check_sales(&connection, &state, &mut report.problems).map_err(at)?;
    check_answers(&connection, &state, &mut report.problems).map_err(at)?;
    let behind = Behind::of(loaded.behind, loaded.changed, loaded.venues);
    tables::check(&connection, &state, &behind, &mut report.problems).map_err(at)?;
    Ok(report)
}

/// What SQLite itself finds, each in a row of its own; a single `ok` when it finds nothing.
fn sqlite_findings(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("PRAGMA integrity_check(20)")?;
    let found = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    Ok(found.into_iter().filter(|found| found != "ok").map(|found| format!("SQLite: {found}")).collect())
}

/// The sales table, which is written with every sale, against the bookings.
fn check_sales(connection: &Connection, state: &State, problems: &mut Vec<String>) -> rusqlite::Result<()> {
    let expected: BTreeSet<(u32, u32, u64)> = state
        .bookings()
        .filter(|(_, booking)| booking.state == BookingState::Booked)
        .flat_map(|(_, booking)| {
            booking.items.iter().filter_map(|item| match item {
                Item::Seat { seat, .. } => Some((booking.event.0, seat.0, booking.number)),
                Item::Pool { .. } => None,
            })
        })
        .collect();
    let mut statement = connection.prepare("SELECT event_no, seat_no, booking_no FROM sales")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let found = rows.collect::<rusqlite::Result<BTreeSet<(u32, u32, u64)>>>()?;
    for &(event, seat, booking) in found.symmetric_difference(&expected) {
        let (known, other) = if found.contains(&(event, seat, booking)) {
            ("the table", "the bookings")
        } else {
            ("the bookings", "the table")
        };
        let seat = seat_in_words(state, EventNo(event), SeatNo(seat));
        problems.push(format!("sales: {seat} is sold with booking {booking} by {known}, and not by {other}"));
    }
    Ok(())
}

fn seat_in_words(state: &State, event: EventNo, seat: SeatNo) -> String {
    match state.event(event) {
        Some(event) if seat.0 < event.layout.seat_count() => {
            format!("{} of {}", event.layout.seat_name(seat), event.id)
        }
        _ => format!("seat {} of event {}, which is not there,", seat.0, event.0),
    }
}

/// Every answer under an idempotency key: whoever repeats a request must be able to have it again.
fn check_answers(connection: &Connection, state: &State, problems: &mut Vec<String>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT seq, at_ms, answer FROM answers ORDER BY seq")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (seq, at, bytes): (u64, u64, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        match get_answer(&bytes, Timestamp::from_millis(at)) {
            Ok(answer) if state.event(answer.event).is_some() => {}
            Ok(_) => problems.push(format!("answers: row {seq} is about an event that is not there")),
            Err(_) => problems.push(format!("answers: row {seq} cannot be read")),
        }
    }
    Ok(())
}
