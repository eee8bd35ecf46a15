//! Halls: what this server knows of each event it was asked about. Its fixed part, and its feed.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use hashbrown::HashMap;
use leasehold_core::{
    Epoch, EventState, HoldId, ItemRequest, Kind, Policy, PoolCounts, PoolNo, Refusal, SeatNo, SeatStatus,
    SectionNo, Text, best_seats,
};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::connection::{CALL_TIME_MAX, CallError, within};
use super::gate::Questions;
use super::part::kind_of;
use super::rows::{EventRow, PoolRow, RulesRow, status_of, time};
use crate::bytes::{Damaged, Get};
use crate::feed::Feed;
use crate::{Change, EventSummary, SeatUpdate, Venue, Version, image};

/// What the gate said of a seat is believed for so long, so that all who want one hot seat do not ask it one by one.
const TAKEN_BELIEVED: Duration = Duration::from_millis(10);
/// Seats of which that is remembered.
const TAKEN_MAX: usize = 256;
/// Log entries that a hall begins with, for readers that come from another server.
const RECALLED_MAX: i64 = 16_384;

/// A change, and the rules after it if it changed them.
pub(crate) type Followed = (Change, Option<(Policy, EventState)>);

/// One event, seen from this server.
#[derive(Debug)]
pub(crate) struct Hall {
    pub(crate) venue: Arc<Venue>,
    pub(crate) feed: Arc<Feed>,
    rules: Mutex<Rules>,
    /// The sections, none for all of them, in which the ledger found no seats together, and until when that is believed.
    no_best: Mutex<HashMap<Option<SectionNo>, Instant>>,
    /// Seats that the gate said are taken, and until when that is believed.
    taken: Mutex<HashMap<SeatNo, Instant>>,
    /// What those whom the ledger refused ask it.
    pub(crate) questions: Questions,
}

/// An event's rules as far as this server knows, and the version that made them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) version: u64,
    pub(crate) policy: Policy,
    pub(crate) state: EventState,
}

/// The events that this server was asked about.
#[derive(Debug)]
pub(crate) struct Halls {
    epoch: Epoch,
    known: RwLock<Known>,
    changes_kept: Arc<AtomicUsize>,
    /// Of the events that are being loaded: one loads, the others wait for it.
    loading: Mutex<HashMap<i32, Arc<AsyncMutex<()>>>>,
}

#[derive(Debug, Default)]
struct Known {
    by_number: HashMap<i32, Arc<Hall>>,
    by_id: HashMap<String, i32>,
}

/// How an event stands in the ledger at one instant.
struct Standing {
    summary: EventSummary,
    rules: Rules,
    seats: Vec<SeatStatus>,
}

impl Hall {
    pub(crate) fn rules(&self) -> Rules {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_rules(&self, rules: Rules) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    pub(crate) fn note_no_best(&self, section: Option<SectionNo>, until: Instant) {
        self.no_best.lock().unwrap_or_else(PoisonError::into_inner).insert(section, until);
    }

    /// Why the best seats cannot be had, if the ledger said so a moment ago and nothing has become free since.
    pub(crate) fn no_best(&self, items: &[ItemRequest], now: Instant) -> Option<Refusal> {
        items.iter().find_map(|item| {
            let ItemRequest::Best { count, section } = *item else { return None };
            let until = self.no_best.lock().unwrap_or_else(PoisonError::into_inner).get(&section).copied()?;
            if now >= until {
                return None;
            }
            self.feed.look(|summary, statuses| {
                let is_free = |seat: SeatNo| statuses[seat.0 as usize] == SeatStatus::Free;
                let counts = &summary.counts;
                let none =
                    counts.free == 0 || best_seats(&self.venue.layout, count, section, is_free).is_none();
                none.then_some(Refusal::NotTogether { available: counts.free, returning: counts.held })
            })
        })
    }

    pub(crate) fn note_taken(&self, seats: &[SeatNo]) {
        let until = Instant::now() + TAKEN_BELIEVED;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.len() + seats.len() > TAKEN_MAX {
            taken.clear();
        }
        taken.extend(seats.iter().take(TAKEN_MAX).map(|seat| (*seat, until)));
    }

    /// Whether the gate said a moment ago that one of these seats is taken.
    pub(crate) fn were_taken(&self, seats: &[SeatNo]) -> bool {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut until = seats.iter().filter_map(|seat| taken.get(seat));
        // The time is asked for only where it matters.
        until.any(|until| Instant::now() < *until)
    }

    /// Tells the readers what happened; false when there is a gap.
    pub(crate) fn follow(&self, changes: Vec<Followed>) -> bool {
        for (change, rules) in &changes {
            if let Some((policy, state)) = *rules {
                self.set_rules(Rules { version: change.version.number, policy, state });
            }
        }
        self.feed.follow(changes)
    }
}

impl Halls {
    pub(crate) fn new(epoch: Epoch) -> Self {
        Self { epoch, known: RwLock::default(), changes_kept: Arc::default(), loading: Mutex::default() }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The hall with this number, if it was loaded.
    pub(crate) fn known(&self, number: i32) -> Option<Arc<Hall>> {
        self.read().by_number.get(&number).cloned()
    }

    /// The hall of the event with this id, if it was loaded.
    pub(crate) fn known_by_id(&self, id: &str) -> Option<Arc<Hall>> {
        let known = self.read();
        known.by_id.get(id).and_then(|number| known.by_number.get(number)).cloned()
    }

    /// All halls that were loaded.
    pub(crate) fn all(&self) -> Vec<Arc<Hall>> {
        self.read().by_number.values().cloned().collect()
    }

    /// How many those are.
    pub(crate) fn count(&self) -> usize {
        self.read().by_number.len()
    }

    /// The hall with this number, loaded when it is not known yet; none when there is no such event.
    pub(crate) async fn get(&self, client: &Client, number: i32) -> Result<Option<Arc<Hall>>, CallError> {
        if let Some(hall) = self.known(number) {
            return Ok(Some(hall));
        }
        let turn = Arc::clone(self.loading().entry(number).or_default());
        // Those who wait for one that does not get through do not each try after the other.
        let waiting = tokio::time::timeout(CALL_TIME_MAX, turn.lock()).await;
        let _turn = waiting.map_err(|_| CallError::Timeout)?;
        let loaded = match self.known(number) {
            Some(hall) => Ok(Some(hall)),
            None => self.load(client, number).await,
        };
        // Those who wait have it already; whoever comes later finds the hall, or tries again.
        self.loading().remove(&number);
        loaded
    }

    async fn load(&self, client: &Client, number: i32) -> Result<Option<Arc<Hall>>, CallError> {
        let Some(venue) = load_venue(client, number).await? else { return Ok(None) };
        let standing = self.standing(client, &venue).await?;
        let feed = Feed::new(standing.summary, standing.seats, Arc::clone(&self.changes_kept));
        let since = feed.version();
        for (change, _) in recent(client, &venue, since, self.epoch).await? {
            feed.recall(change);
        }
        let hall = Arc::new(Hall {
            venue: Arc::new(venue),
            feed: Arc::new(feed),
            rules: Mutex::new(standing.rules),
            no_best: Mutex::default(),
            taken: Mutex::default(),
            questions: Questions::default(),
        });
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // There is one hall for all.
        let hall = Arc::clone(known.by_number.entry(number).or_insert(hall));
        known.by_id.insert(hall.venue.id.as_str().to_owned(), number);
        Ok(Some(hall))
    }

    /// The hall of the event with this id.
    pub(crate) async fn find(&self, client: &Client, id: &str) -> Result<Option<Arc<Hall>>, CallError> {
        if let Some(hall) = self.known_by_id(id) {
            return Ok(Some(hall));
        }
        let sql = "SELECT no FROM leasehold.events WHERE id = $1";
        match within(CALL_TIME_MAX, client.query_opt(sql, &[&id])).await? {
            Some(row) => self.get(client, row.get(0)).await,
            None => Ok(None),
        }
    }

    /// Reads a hall again whose log has a gap: it was away for longer than the log is kept.
    pub(crate) async fn begin_anew(&self, client: &Client, hall: &Hall) -> Result<(), CallError> {
        let standing = self.standing(client, &hall.venue).await?;
        hall.set_rules(standing.rules);
        hall.feed.begin_anew(standing.summary, standing.seats);
        Ok(())
    }

    /// One statement, so that everything is of one instant.
    async fn standing(&self, client: &Client, venue: &Venue) -> Result<Standing, CallError> {
        let number = venue.number.0.cast_signed();
        let row =
            within(CALL_TIME_MAX, client.query_one(include_str!("sql/standing.sql"), &[&number])).await?;
        let event: EventRow = serde_json::from_str(row.get(0))?;
        let pools: Vec<PoolRow> = serde_json::from_str(row.get(1))?;
        let mut seats = vec![SeatStatus::Free; venue.layout.seat_count() as usize];
        let numbers: Option<Vec<i32>> = row.get(2);
        let statuses: Option<Vec<i16>> = row.get(3);
        for (seat, status) in numbers.iter().flatten().zip(statuses.iter().flatten()) {
            let place = usize::try_from(*seat).map_err(|_| Damaged)?;
            *seats.get_mut(place).ok_or(Damaged)? = status_of((*status).into())?;
        }
        let rules = Rules {
            version: event.rules_version.unsigned_abs(),
            policy: event.rules.policy()?,
            state: event.rules.state(),
        };
        Ok(Standing { summary: summary(&event, &pools, self.epoch)?, rules, seats })
    }

    fn loading(&self) -> MutexGuard<'_, HashMap<i32, Arc<AsyncMutex<()>>>> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How an event stands, from its rows.
pub(crate) fn summary(event: &EventRow, pools: &[PoolRow], epoch: Epoch) -> Result<EventSummary, Damaged> {
    Ok(EventSummary {
        state: event.rules.state(),
        version: Version { epoch, number: event.version.unsigned_abs() },
        counts: event.counts()?,
        pools: pools.iter().map(PoolRow::counts).collect::<Result<_, _>>()?,
        policy: event.rules.policy()?,
    })
}

async fn load_venue(client: &Client, number: i32) -> Result<Option<Venue>, CallError> {
    let sql = "SELECT venue.image, event.created_at FROM leasehold.venues AS venue
               JOIN leasehold.events AS event ON event.no = venue.event_no WHERE venue.event_no = $1";
    let Some(row) = within(CALL_TIME_MAX, client.query_opt(sql, &[&number])).await? else { return Ok(None) };
    let mut event = image::get_event(&mut Get(row.get(0)))?;
    event.number = leasehold_core::EventNo(number.cast_unsigned());
    event.created_at = time(row.get(1));
    Ok(Some(Venue::of(&event)))
}

/// The last entries up to a version, in order.
async fn recent(client: &Client, venue: &Venue, upto: u64, epoch: Epoch) -> Result<Vec<Followed>, CallError> {
    let sql = "SELECT version, at, kind, seats, pools, rules::text, subject, reason FROM leasehold.log
               WHERE event_no = $1 AND version > $2::bigint - $3::bigint AND version <= $2 ORDER BY version";
    let (number, upto) = (venue.number.0.cast_signed(), upto.cast_signed());
    let rows = within(CALL_TIME_MAX, client.query(sql, &[&number, &upto, &RECALLED_MAX])).await?;
    rows.iter().map(|row| change(row, 0, epoch)).collect()
}

/// Reads a log entry from the columns from `first` on: version, at, kind, seats, pools, rules, subject,
/// reason.
pub(crate) fn change(row: &Row, first: usize, epoch: Epoch) -> Result<Followed, CallError> {
    let (version, at): (i64, i64) = (row.get(first), row.get(first + 1));
    let seats: Option<Vec<i32>> = row.get(first + 3);
    let pools: Option<Vec<i32>> = row.get(first + 4);
    let seats = seats.as_deref().unwrap_or_default().chunks_exact(2).map(|pair| {
        Ok(SeatUpdate { seat: SeatNo(pair[0].cast_unsigned()), status: status_of(pair[1].into())? })
    });
    let pools = pools.as_deref().unwrap_or_default().chunks_exact(5).map(|numbers| {
        let [pool, capacity, held, sold, blocked] =
            [0, 1, 2, 3, 4].map(|place| numbers[place].cast_unsigned());
        (PoolNo(pool), PoolCounts { capacity, held, sold, blocked })
    });
    let rules: Option<&str> = row.get(first + 5);
    let rules = match rules {
        Some(text) => {
            let rules: RulesRow = serde_json::from_str(text)?;
            Some((rules.policy()?, rules.state()))
        }
        None => None,
    };
    let kind = kind_of(row.get(first + 2))?;
    let subject: Option<Uuid> = row.get(first + 6);
    let reason: Option<&str> = row.get(first + 7);
    let reason = reason.map(|text| Text::parse(text).map_err(|_| Damaged)).transpose()?;
    let is_block = matches!(kind, Kind::BlockCreated | Kind::BlockRemoved);
    let change = Change {
        version: Version { epoch, number: version.unsigned_abs() },
        at: time(at),
        kind,
        hold: subject.filter(|_| !is_block).and_then(|id| HoldId::from_raw(id.as_u128())),
        reason,
        seats: seats.collect::<Result<_, Damaged>>()?,
        pools: pools.collect(),
    };
    Ok((change, rules))
}
