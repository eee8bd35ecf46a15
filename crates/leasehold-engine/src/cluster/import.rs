//! Moves everything that a data file has into an empty ledger, in one transaction.
//!
//! Ids, secrets, fences, versions and answers stay what they are, so clients notice nothing. The log of each event ends
//! with an entry that says that it was changed: by the move, at the ledger's time.

use std::path::Path;
use std::time::Duration;

use leasehold_core::{Event, Kind, PoolCounts, PoolNo, SeatNo, Timestamp};
use tokio_postgres::Client;
use uuid::Uuid;

use super::connection::{self, CallError, Driver, LARGE_TIME_MAX, within};
use super::migrate::{MigrateError, migrate};
use super::part::{Images, kind_number, owner_id, retention};
use super::remembered::to_hex;
use super::rows::{
    AnswerRow, BlockRow, BookingRow, EventRow, HoldRow, LogRow, PaymentRow, PoolRow, RulesRow, SeatRow,
    millis, status_number, time,
};
use super::wants::{hold_id, number};
use super::{OpenLedgerError, create, database_at, key_code, unusable};
use crate::embedded::{Departure, KeptAnswer, Leaving};
use crate::{Change, OpenError, SecretKey};

/// Rows that are written with one call.
const PIECE: usize = 2_000;
/// Log entries that come along for each event: as many as a ledger keeps.
const ENTRIES_MAX: usize = 65_536;

/// How long it may take to find out whether what got no answer was done: longer than a ledger needs to start again, or to end
/// what nobody is at any more.
const FIND_OUT_TIME_MAX: Duration = Duration::from_secs(60);
const FIND_OUT_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A data file that is to be moved. While this lives no server can open it.
#[derive(Debug)]
pub struct DataFile(Leaving);

/// What was moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Events.
    pub events: usize,
    /// Holds, live and ended.
    pub holds: usize,
    /// Sales, standing and cancelled.
    pub bookings: usize,
    /// Log entries.
    pub entries: usize,
    /// Answers under idempotency keys.
    pub answers: usize,
}

/// Why a data file was not moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The file cannot be opened or read.
    #[error(transparent)]
    File(#[from] OpenError),
    /// The ledger cannot be opened or written.
    #[error(transparent)]
    Ledger(#[from] OpenLedgerError),
    /// There is something in the ledger.
    #[error("the ledger has {0} events already: a data file is moved into an empty one")]
    NotEmpty(i32),
    /// The ledger did not answer, and could not be asked.
    #[error("nobody knows whether it is in the ledger: run this again, which finds out ({0})")]
    Unknown(String),
    /// It may be in another one.
    #[error(
        "the file may be in another ledger, because a move there got no answer: run this again with that one"
    )]
    OtherLedger,
}

/// Rows on their way.
struct Writing<'a> {
    client: &'a Client,
    images: Images,
    rows: usize,
}

impl DataFile {
    /// Opens a data file that no server uses.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Leaving::open(path.as_ref()).map(Self)
    }

    /// The key that its hold secrets are made with: what servers on the ledger need.
    pub fn key(&self) -> &SecretKey {
        &self.0.key
    }

    /// The key of a file that a server may be using.
    pub fn key_of(path: impl AsRef<Path>) -> Result<SecretKey, OpenError> {
        Leaving::key_of(path.as_ref())
    }

    /// Looks at the ledger that a file with this key is to be moved into, and makes its tables: whatever is wrong with it is
    /// better known before the file's server is stopped.
    pub async fn prepare(url: &str, key: &SecretKey) -> Result<(), MoveError> {
        Ledger::lock(url).await?.check(key)
    }

    /// Moves everything into the ledger at this address, and marks the file so that no server starts on it again. `None` when
    /// it was there already, and the answer had been lost.
    pub async fn move_into(self, url: &str) -> Result<Option<Moved>, MoveError> {
        let ledger = Ledger::lock(url).await?;
        if let Departure::Moving(to) = self.0.departure {
            if to != ledger.id {
                return Err(MoveError::OtherLedger);
            }
            if self.is_in(&ledger).await.map_err(unusable)? {
                self.0.mark(Departure::Moved)?;
                return Ok(None);
            }
            // Whoever was at it has ended, in vain.
            self.0.mark(Departure::Stays)?;
        }
        ledger.check(&self.0.key)?;
        let moved = self.write(&ledger).await?;
        // Should the answer be lost, no server starts on the file until it is known what became of it.
        self.0.mark(Departure::Moving(ledger.id))?;
        if let Err(error) = ledger.commit().await {
            match tokio::time::timeout(FIND_OUT_TIME_MAX, self.is_committed(url)).await {
                Ok(true) => {}
                Ok(false) => {
                    self.0.mark(Departure::Stays)?;
                    return Err(unusable(error).into());
                }
                Err(_) => return Err(MoveError::Unknown(error.to_string())),
            }
        }
        self.0.mark(Departure::Moved)?;
        Ok(Some(moved))
    }

    /// Whether the file is in the ledger, after whoever is at it has ended. A ledger that cannot be asked is asked again.
    async fn is_committed(&self, url: &str) -> bool {
        loop {
            if let Ok(ledger) = Ledger::lock(url).await
                && let Ok(is_in) = self.is_in(&ledger).await
            {
                return is_in;
            }
            tokio::time::sleep(FIND_OUT_AGAIN_AFTER).await;
        }
    }

    /// Whether the ledger has all of the file's events: the same ids, made at the same times.
    async fn is_in(&self, ledger: &Ledger) -> Result<bool, CallError> {
        let events = self.0.state.events();
        let (ids, times): (Vec<&str>, Vec<i64>) =
            events.iter().map(|event| (event.id.as_str(), millis(event.created_at))).unzip();
        let sql = "SELECT count(*)::integer FROM leasehold.events
                   JOIN unnest($1::text[], $2::bigint[]) AS of_file (id, created_at) USING (id, created_at)";
        let row = within(LARGE_TIME_MAX, ledger.client.query_one(sql, &[&ids, &times])).await?;
        Ok(!ids.is_empty() && usize::try_from(row.get::<_, i32>(0)) == Ok(ids.len()))
    }

    async fn write(&self, ledger: &Ledger) -> Result<Moved, MoveError> {
        let client = &ledger.client;
        let code = key_code(&self.0.key);
        let epoch = self.0.state.epoch().0.cast_signed();
        let sql = "UPDATE leasehold.ledger SET key_check = $1, epoch = $2";
        within(LARGE_TIME_MAX, client.execute(sql, &[&code, &epoch])).await.map_err(unusable)?;
        let at = ledger.now.max(self.0.last_time);
        let mut moved = self.things(client, at).await.map_err(unusable)?;
        moved.answers = self.answers(client).await?;
        Ok(moved)
    }

    /// Everything but the answers.
    async fn things(&self, client: &Client, at: Timestamp) -> Result<Moved, CallError> {
        let Leaving { state, history, .. } = &self.0;
        let mut moved = Moved { events: state.events().len(), ..Moved::default() };
        let mut writing = Writing { client, images: Images::default(), rows: 0 };
        for event in state.events() {
            add_event(client, event).await?;
            let no = number(event.number);
            for (place, seat) in event.seats().iter().enumerate().filter(|(_, seat)| seat.fence.0 > 0) {
                let row = SeatRow {
                    event_no: no,
                    seat_no: SeatNo(place as u32).0.cast_signed(),
                    fence: seat.fence.0.cast_signed(),
                    status: status_number(seat.owner.status()),
                    owner: owner_id(state, seat.owner),
                };
                writing.add(|images| images.seats.push(row)).await?;
            }
            for (place, pool) in event.pools().iter().enumerate() {
                let row = PoolRow::new(no, PoolNo(place as u32), &PoolCounts::of(pool));
                writing.add(|images| images.pools.push(row)).await?;
            }
            let log = history.iter().filter(|(of, _)| *of == event.number).map(|(_, change)| change);
            let known = log.clone().count();
            for change in log.skip(known.saturating_sub(ENTRIES_MAX - 1)) {
                let row = log_row(no, change);
                writing.add(|images| images.log.push(row)).await?;
                moved.entries += 1;
            }
            let (row, entry) = last_entry(event, at);
            writing.add(|images| images.log.push(entry)).await?;
            writing.add(|images| images.events.push(row)).await?;
        }
        for (_, hold) in state.holds() {
            let row = HoldRow::new(number(hold.event), hold, retention(state, hold));
            writing.add(|images| images.holds.push(row)).await?;
            moved.holds += 1;
        }
        for (_, booking) in state.bookings() {
            let row = BookingRow::new(number(booking.event), booking);
            writing.add(|images| images.bookings.push(row)).await?;
            moved.bookings += 1;
        }
        for (_, block) in state.blocks() {
            let row = BlockRow::new(number(block.event), block);
            writing.add(|images| images.blocks.push(row)).await?;
        }
        for payment in state.payments() {
            let row = PaymentRow::new(number(payment.event), payment);
            writing.add(|images| images.payments.push(row)).await?;
        }
        // What each holder has is counted in what was written.
        for event in state.events() {
            writing.add(|images| images.recount.push(number(event.number))).await?;
        }
        writing.flush().await?;
        Ok(moved)
    }

    async fn answers(&self, client: &Client) -> Result<usize, MoveError> {
        let mut writing = Writing { client, images: Images::default(), rows: 0 };
        let (mut count, mut last) = (0, 0);
        loop {
            let answers = self.0.answers_after(last, PIECE as u32)?;
            let Some(newest) = answers.last() else { break };
            last = newest.seq;
            count += answers.len();
            for answer in answers {
                writing.add(|images| images.answers.push(answer_row(&answer))).await.map_err(unusable)?;
            }
        }
        writing.flush().await.map_err(unusable)?;
        Ok(count)
    }
}

/// A transaction in which the ledger is locked: no server creates an event meanwhile. It is dropped with the connection, and
/// undone, if anything goes wrong.
struct Ledger {
    client: Client,
    _driver: Driver,
    id: u128,
    events: i32,
    key_check: Option<Vec<u8>>,
    now: Timestamp,
}

impl Ledger {
    /// Makes its tables if that is needed, and begins.
    async fn lock(url: &str) -> Result<Self, MoveError> {
        let database = database_at(url)?;
        migrate(&database).await.map_err(|error| match error {
            MigrateError::TooNew(found) => OpenLedgerError::TooNew { found },
            MigrateError::Call(error) => unusable(error),
        })?;
        let (client, driver) = connection::laborious(&database).await.map_err(unusable)?;
        let sql = "SELECT id, events, key_check, leasehold.now_ms() FROM leasehold.ledger FOR UPDATE";
        let begin = async {
            client.batch_execute("BEGIN").await?;
            client.query_one(sql, &[]).await
        };
        let row = within(LARGE_TIME_MAX, begin).await.map_err(unusable)?;
        Ok(Self {
            client,
            _driver: driver,
            id: row.get::<_, Uuid>(0).as_u128(),
            events: row.get(1),
            key_check: row.get(2),
            now: time(row.get(3)),
        })
    }

    /// Only an empty ledger takes a file, and only with the key that its servers have.
    fn check(&self, key: &SecretKey) -> Result<(), MoveError> {
        if self.events > 0 {
            return Err(MoveError::NotEmpty(self.events));
        }
        match &self.key_check {
            Some(known) if *known != key_code(key) => Err(OpenLedgerError::OtherKey.into()),
            _ => Ok(()),
        }
    }

    async fn commit(self) -> Result<(), CallError> {
        within(LARGE_TIME_MAX, self.client.batch_execute("COMMIT")).await
    }
}

/// The event as if it were new, under the number it has, without an entry in the log.
async fn add_event(client: &Client, event: &Event) -> Result<(), CallError> {
    let no = number(event.number);
    let added = create::add(client, event).await?;
    assert!(added.is_ok_and(|(added, _)| added == no), "the events of a file have numbers without gaps");
    let sql = "DELETE FROM leasehold.log WHERE event_no = $1";
    within(LARGE_TIME_MAX, client.execute(sql, &[&no])).await?;
    let sql = "UPDATE leasehold.events SET created_at = $2 WHERE no = $1";
    within(LARGE_TIME_MAX, client.execute(sql, &[&no, &millis(event.created_at)])).await.map(drop)
}

/// The event's row as it stands, and the entry that says so.
fn last_entry(event: &Event, at: Timestamp) -> (EventRow, LogRow) {
    let (no, version) = (number(event.number), event.version.cast_signed() + 1);
    let rules = RulesRow::new(&event.policy, event.state);
    let entry = LogRow {
        event_no: no,
        version,
        at: millis(at),
        kind: kind_number(Kind::EventUpdated),
        seats: None,
        pools: None,
        rules: Some(rules.clone()),
        subject: None,
        reason: None,
    };
    let mut row = EventRow {
        no,
        id: event.id.as_str().to_owned(),
        last_at: millis(at),
        created_at: millis(event.created_at),
        rules_version: version,
        version,
        rules,
        seats_free: 0,
        seats_held: 0,
        seats_sold: 0,
        seats_blocked: 0,
    };
    row.set_counts(event.counts());
    (row, entry)
}

fn log_row(no: i32, change: &Change) -> LogRow {
    let seats = change.seats.iter();
    let seats = seats.flat_map(|update| [update.seat.0.cast_signed(), status_number(update.status).into()]);
    let pools = change.pools.iter().flat_map(|(pool, counts)| {
        let PoolCounts { capacity, held, sold, blocked } = *counts;
        [pool.0, capacity, held, sold, blocked].map(u32::cast_signed)
    });
    LogRow {
        event_no: no,
        version: change.version.number.cast_signed(),
        at: millis(change.at),
        kind: kind_number(change.kind),
        seats: (!change.seats.is_empty()).then(|| seats.collect()),
        pools: (!change.pools.is_empty()).then(|| pools.collect()),
        rules: None,
        subject: change.hold.map(hold_id),
        reason: change.reason.as_ref().map(|text| text.as_str().to_owned()),
    }
}

fn answer_row(answer: &KeptAnswer) -> AnswerRow {
    AnswerRow {
        scope: Uuid::from_u128(answer.key.scope),
        fingerprint: Uuid::from_u128(answer.key.fingerprint),
        event_no: number(answer.event),
        at: millis(answer.at),
        answer: to_hex(&answer.bytes),
        number: None,
        fences: None,
        booking: None,
    }
}

impl Writing<'_> {
    async fn add(&mut self, add: impl FnOnce(&mut Images)) -> Result<(), CallError> {
        add(&mut self.images);
        self.rows += 1;
        if self.rows >= PIECE { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), CallError> {
        let images = serde_json::to_string(&std::mem::take(&mut self.images))?;
        self.rows = 0;
        let sql = "SELECT leasehold.write_v3($1::text::json)";
        within(LARGE_TIME_MAX, self.client.execute(sql, &[&images])).await.map(drop)
    }
}
