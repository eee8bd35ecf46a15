//! The start: tables first, then the journal's tail of after-images over them.

use std::collections::BTreeSet;
use std::path::Path;

use leasehold_core::{
    BlockSlot, BookingSlot, Epoch, EventNo, Fence, HoldSlot, Kind, PoolNo, SeatNo, State, Timestamp, Touched,
};
use rusqlite::{Connection, OptionalExtension};

use super::OpenError;
use super::journal::{Over, replay_entry};
use super::store::meta;
use crate::Change;
use crate::bytes::{Damaged, Get};
use crate::image;

/// Changes that are kept for readers at most, about.
const HISTORY_MAX: usize = 100_000;

/// What a data file holds.
pub(crate) struct Loaded {
    pub(crate) state: State,
    /// The latest time in the file: the clock goes on from there.
    pub(crate) last_time: Timestamp,
    /// Changes still in the journal, oldest first, for readers that come back.
    pub(crate) history: Vec<(EventNo, Change)>,
    /// What the tables do not show yet.
    pub(crate) behind: Vec<Touched>,
    /// Events of which the tables do not show the newest version yet.
    pub(crate) changed: BTreeSet<EventNo>,
    /// How many entries the tables are behind.
    pub(crate) replayed: u64,
    /// So many events are wholly in the tables. One that was created behind the floor may be there in part.
    pub(crate) venues: u32,
}

enum LoadError {
    Sqlite(rusqlite::Error),
    Damaged(String),
}

impl From<rusqlite::Error> for LoadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Damaged> for LoadError {
    fn from(damaged: Damaged) -> Self {
        Self::Damaged(damaged.to_string())
    }
}

/// Reads the whole file.
pub(crate) fn load(connection: &Connection, path: &Path, epoch: Epoch) -> Result<Loaded, OpenError> {
    try_load(connection, epoch).map_err(|error| match error {
        LoadError::Sqlite(source) => OpenError::Sqlite { path: path.to_owned(), source },
        LoadError::Damaged(what) => OpenError::Damaged { path: path.to_owned(), what },
    })
}

/// How far the tables have come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tables {
    /// Everything up to this entry is in them.
    pub(crate) floor: u64,
    /// So many events have their fixed part in them.
    pub(crate) venues: u32,
    /// The number of the newest answer under a key.
    pub(crate) last_answer: u64,
    /// Answers up to this number are of no use any more.
    pub(crate) forgotten_answers: Option<u64>,
}

impl Tables {
    pub(crate) fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let floor = meta::<[u8; 8]>(connection, "floor")?.map_or(0, u64::from_le_bytes);
        let venues = connection.query_row("SELECT count(*) FROM venues", [], |row| row.get(0))?;
        let last_answer =
            connection.query_row("SELECT coalesce(max(seq), 0) FROM answers", [], |row| row.get(0))?;
        Ok(Self { floor, venues, last_answer, forgotten_answers: None })
    }
}

fn try_load(connection: &Connection, epoch: Epoch) -> Result<Loaded, LoadError> {
    let mut state = State::new(epoch);
    load_tables(connection, &mut state)?;
    let Tables { floor, venues, .. } = Tables::of(connection)?;
    state.load_seq(floor);
    let mut loaded = Loaded {
        state,
        last_time: Timestamp::default(),
        history: Vec::new(),
        behind: Vec::new(),
        changed: BTreeSet::new(),
        replayed: 0,
        venues,
    };
    load_journal(connection, floor, epoch, &mut loaded)?;
    // What was only answered has no entry in the journal.
    let answered = "SELECT at_ms FROM answers ORDER BY seq DESC LIMIT 1";
    let answered: Option<u64> = connection.query_row(answered, [], |row| row.get(0)).optional()?;
    loaded.last_time = loaded.last_time.max(Timestamp::from_millis(answered.unwrap_or(0)));
    let dropped = loaded.state.finish_loading().map_err(LoadError::Damaged)?;
    loaded.behind.extend(dropped);
    Ok(loaded)
}

fn load_tables(connection: &Connection, state: &mut State) -> Result<(), LoadError> {
    let mut venues = connection.prepare("SELECT image FROM venues ORDER BY event_no")?;
    let mut rows = venues.query([])?;
    while let Some(row) = rows.next()? {
        state.load_event(image::get_event(&mut versioned(row.get_ref(0)?.as_blob().map_err(not_a_blob)?)?)?);
    }
    let mut events = connection.prepare("SELECT event_no, rules FROM events")?;
    let mut rows = events.query([])?;
    while let Some(row) = rows.next()? {
        let rules = image::get_rules(&mut versioned(row.get_ref(1)?.as_blob().map_err(not_a_blob)?)?)?;
        let event = state.loading_event(EventNo(row.get(0)?)).ok_or(Damaged)?;
        event.load_rules(rules.policy, rules.state, rules.version);
    }
    let mut seats = connection.prepare("SELECT event_no, seat_no, fence FROM seats WHERE fence > 0")?;
    let mut rows = seats.query([])?;
    while let Some(row) = rows.next()? {
        let event = state.loading_event(EventNo(row.get(0)?)).ok_or(Damaged)?;
        event.load_fence(SeatNo(row.get(1)?), Fence(row.get(2)?));
    }
    let mut pools = connection.prepare("SELECT event_no, pool_no, capacity FROM pools")?;
    let mut rows = pools.query([])?;
    while let Some(row) = rows.next()? {
        let event = state.loading_event(EventNo(row.get(0)?)).ok_or(Damaged)?;
        event.load_capacity(PoolNo(row.get(1)?), row.get(2)?);
    }
    each_image(connection, "SELECT slot, image FROM holds ORDER BY slot", |slot, get| {
        state.load_hold(HoldSlot(slot), image::get_hold(get)?);
        Ok(())
    })?;
    each_image(connection, "SELECT slot, image FROM bookings ORDER BY slot", |slot, get| {
        state.load_booking(BookingSlot(slot), image::get_booking(get)?);
        Ok(())
    })?;
    each_image(connection, "SELECT slot, image FROM blocks ORDER BY slot", |slot, get| {
        state.load_block(BlockSlot(slot), image::get_block(get)?);
        Ok(())
    })?;
    each_image(connection, "SELECT event_no, image FROM payments", |_, get| {
        state.load_payment(image::get_payment(get)?);
        Ok(())
    })
}

fn each_image(
    connection: &Connection,
    sql: &str,
    mut load: impl FnMut(u32, &mut Get<'_>) -> Result<(), Damaged>,
) -> Result<(), LoadError> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        load(row.get(0)?, &mut versioned(row.get_ref(1)?.as_blob().map_err(not_a_blob)?)?)?;
    }
    Ok(())
}

/// Entries at or before the floor are only history: newer images of the same things may be in the tables.
fn load_journal(
    connection: &Connection,
    floor: u64,
    epoch: Epoch,
    loaded: &mut Loaded,
) -> Result<(), LoadError> {
    let mut statement =
        connection.prepare("SELECT first_seq, last_seq, at_ms, entries FROM journal ORDER BY last_seq")?;
    let mut rows = statement.query([])?;
    let mut next = None;
    while let Some(row) = rows.next()? {
        let (first, last): (u64, u64) = (row.get(0)?, row.get(1)?);
        // The oldest entries were deleted once the tables had them, and never one from the middle.
        let expected = next.unwrap_or(first.min(floor + 1));
        if first != expected {
            return Err(missing(expected));
        }
        next = Some(last + 1);
        loaded.last_time = loaded.last_time.max(Timestamp::from_millis(row.get(2)?));
        let mut get = Get(row.get_ref(3)?.as_blob().map_err(not_a_blob)?);
        for seq in first..=last {
            if seq <= floor {
                let (event, change) = replay_entry(&mut get, epoch, None)?;
                loaded.state.loading_event(event).ok_or(Damaged)?;
                loaded.history.push((event, change));
            } else {
                let over = Over { state: &mut loaded.state, touched: &mut loaded.behind };
                let (event, change) = replay_entry(&mut get, epoch, Some(over))?;
                loaded.changed.insert(event);
                loaded.history.push((event, change));
                loaded.state.load_seq(seq);
                loaded.replayed += 1;
                if let Some((event, Change { kind: Kind::EventCreated, .. })) = loaded.history.last() {
                    loaded.venues = loaded.venues.min(event.0);
                }
            }
        }
        if loaded.history.len() > 2 * HISTORY_MAX {
            loaded.history.drain(..HISTORY_MAX);
        }
        if !get.is_empty() {
            return Err(LoadError::Damaged(format!("journal row {last} has bytes too many")));
        }
    }
    // The newest entry always stays.
    match next.unwrap_or(1) {
        next if next <= floor => Err(missing(next)),
        _ => Ok(()),
    }
}

fn missing(seq: u64) -> LoadError {
    LoadError::Damaged(format!("journal entry {seq} is missing"))
}

fn versioned(bytes: &[u8]) -> Result<Get<'_>, Damaged> {
    let mut get = Get(bytes);
    if get.u8()? == image::FORMAT { Ok(get) } else { Err(Damaged) }
}

fn not_a_blob(_: rusqlite::types::FromSqlError) -> Damaged {
    Damaged
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leasehold_core::{Changes, Command, CreateEvent, Layout, Name, Policy, Text};

    use super::*;
    use crate::embedded::journal::put_entry;
    use crate::embedded::projection::Projection;
    use crate::embedded::store::Store;
    use crate::{Availability, EmbeddedEngine, EmbeddedOptions, Engine, Since, check_file};

    const SEATS: u32 = 100;

    /// Leaves a file as a crash does that comes when so many commits have written their part of a new event.
    fn crash_in_first_pass(path: &Path, commits: usize) {
        let mut store = Store::open(path).unwrap();
        let now = Timestamp::from_millis(1_000);
        let (_, epoch) = store.identity(now).unwrap();
        let mut state = State::new(epoch);
        let mut changes = Changes::default();
        let create = CreateEvent {
            id: Name::parse("gala").unwrap(),
            name: Text::parse("Gala").unwrap(),
            layout: Arc::new(Layout::grid(&[(Name::parse("A").unwrap(), 1, SEATS)]).unwrap()),
            pools: vec![(Name::parse("floor").unwrap(), 5)],
            policy: Policy::default(),
        };
        state.apply(Command::CreateEvent(create), now, &mut changes).unwrap();
        let mut entries = Vec::new();
        put_entry(&mut entries, &state, &changes, &changes.entries[0]);
        let sql = "INSERT INTO journal (first_seq, last_seq, at_ms, entries) VALUES (1, 1, 1000, ?1)";
        store.connection.execute(sql, [&entries]).unwrap();
        let mut projection = Projection::onto(0);
        changes.touched.iter().for_each(|touched| projection.mark(touched, &state));
        for _ in 0..commits {
            let transaction = store.connection.transaction().unwrap();
            let stepped = projection.step(&transaction, &state, 1, 1).unwrap();
            assert!(stepped.rows > 0 && stepped.floor.is_none(), "the pass is not over: {stepped:?}");
            transaction.commit().unwrap();
        }
    }

    #[tokio::test]
    async fn a_crash_between_two_parts_of_a_new_events_first_pass_loses_nothing() {
        for commits in 0..=3 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.db");
            crash_in_first_pass(&path, commits);
            let engine = EmbeddedEngine::open(EmbeddedOptions::new(&path)).unwrap();
            let venue = engine.venue("gala").await.unwrap().expect("the event is there");
            let Availability::Full(all) = engine.availability(&venue, Since::Nothing).await.unwrap() else {
                panic!("all was asked for")
            };
            assert_eq!((all.seats.len(), all.summary.pools[0].capacity), (SEATS as usize, 5));
            let mut report = check_file(&path).unwrap();
            while report.behind > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                report = check_file(&path).unwrap();
            }
            engine.close().await;
            assert_eq!(report.problems, Vec::<String>::new(), "after {commits} commits");
        }
    }
}
