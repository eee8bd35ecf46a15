//! Looks through a data file without changing it, and recomputes everything.

use std::collections::HashSet;
use std::path::Path;

use leasehold_core::invariants;
use leasehold_core::{BookingState, Epoch, EventNo, Item, PoolNo, SeatNo, State, Touched};
use rusqlite::Connection;

use super::OpenError;
use super::load::{Tables, load};
use super::projection::seat_state;
use super::store::Store;

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
    let behind = Behind::of(&loaded.behind, loaded.venues);
    check_tables(&connection, &state, &behind, &mut report.problems).map_err(at)?;
    Ok(report)
}

/// What SQLite itself finds, each in a row of its own; a single `ok` when it finds nothing.
fn sqlite_findings(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("PRAGMA integrity_check(20)")?;
    let found = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    Ok(found.into_iter().filter(|found| found != "ok").map(|found| format!("SQLite: {found}")).collect())
}

/// What the journal's tail changed: the tables show it as it was, and that is in order.
struct Behind {
    seats: HashSet<(EventNo, SeatNo)>,
    pools: HashSet<(EventNo, PoolNo)>,
    /// Events from this one on may be in the tables in part.
    venues: u32,
}

impl Behind {
    fn of(touched: &[Touched], venues: u32) -> Self {
        let mut behind = Self { seats: HashSet::new(), pools: HashSet::new(), venues };
        for touched in touched {
            match *touched {
                Touched::Seat(event, seat, ..) => drop(behind.seats.insert((event, seat))),
                Touched::Pool(event, pool, _) => drop(behind.pools.insert((event, pool))),
                _ => {}
            }
        }
        behind
    }

    fn is_new(&self, event: u32) -> bool {
        event >= self.venues
    }
}

/// The sales table, which is written with every sale, against the bookings.
fn check_sales(connection: &Connection, state: &State, problems: &mut Vec<String>) -> rusqlite::Result<()> {
    let mut expected: Vec<(u32, u32, u64)> = state
        .bookings()
        .filter(|(_, booking)| booking.state == BookingState::Booked)
        .flat_map(|(_, booking)| {
            booking.items.iter().filter_map(|item| match item {
                Item::Seat { seat, .. } => Some((booking.event.0, seat.0, booking.number)),
                Item::Pool { .. } => None,
            })
        })
        .collect();
    expected.sort_unstable();
    let sql = "SELECT event_no, seat_no, booking_no FROM sales ORDER BY event_no, seat_no";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let found = rows.collect::<rusqlite::Result<Vec<(u32, u32, u64)>>>()?;
    if found != expected {
        problems.push(format!(
            "sales: the table has {} sold seats, the bookings have {}",
            found.len(),
            expected.len()
        ));
    }
    Ok(())
}

/// The tables against the state, in all that they claim to show.
fn check_tables(
    connection: &Connection,
    state: &State,
    behind: &Behind,
    problems: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let mut counts = vec![(0, 0); state.events().len()];
    let mut statement = connection.prepare("SELECT event_no, seat_no, seat, state, fence FROM seats")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (event, place): (u32, u32) = (row.get(0)?, row.get(1)?);
        counts.get_mut(event as usize).into_iter().for_each(|(seats, _)| *seats += 1);
        let seat = state.event(EventNo(event)).and_then(|event| event.seats().get(place as usize));
        let (name, status, fence): (String, String, u64) = (row.get(2)?, row.get(3)?, row.get(4)?);
        let agrees =
            seat.is_some_and(|seat| seat_state(seat.owner.status()) == status && seat.fence.0 == fence);
        let is_behind = behind.is_new(event) || behind.seats.contains(&(EventNo(event), SeatNo(place)));
        if !agrees && !is_behind {
            problems.push(format!(
                "seats: {name} is {status} with fence {fence} in the table, {seat:?} by its owner"
            ));
        }
    }
    let mut statement =
        connection.prepare("SELECT event_no, pool_no, pool, capacity, held, sold, blocked FROM pools")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (event, place): (u32, usize) = (row.get(0)?, row.get(1)?);
        counts.get_mut(event as usize).into_iter().for_each(|(_, pools)| *pools += 1);
        let pool = state.event(EventNo(event)).and_then(|event| event.pools().get(place));
        let units: (u32, u32, u32, u32) = (row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?);
        let agrees = pool.is_some_and(|pool| (pool.capacity, pool.held, pool.sold, pool.blocked) == units);
        let is_behind =
            behind.is_new(event) || behind.pools.contains(&(EventNo(event), PoolNo(place as u32)));
        if !agrees && !is_behind {
            let name: String = row.get(2)?;
            problems.push(format!("pools: {name} has {units:?} in the table, {pool:?} by its owners"));
        }
    }
    for (event, (seats, pools)) in state.events().iter().zip(counts) {
        if !behind.is_new(event.number.0)
            && (seats, pools) != (event.layout.seat_count(), event.pools().len())
        {
            problems.push(format!(
                "{}: the tables have {seats} seats and {pools} pools, the event has {} and {}",
                event.id,
                event.layout.seat_count(),
                event.pools().len()
            ));
        }
    }
    Ok(())
}
