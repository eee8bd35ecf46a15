//! Doubts: how long what the gate has noted is good, before one caller asks the ledger again, and whose it is.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use leasehold_core::{HoldId, SeatNo};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::super::connection::{CALL_TIME_MAX, within};
use super::super::shared::{Reader, Shared};
use crate::Venue;

/// The longest that anything is good for: the gate and the ledger may differ for reasons nobody thought of. Asking costs
/// two statements: the hold, and when to ask again.
pub(super) const DOUBT_AFTER: Duration = Duration::from_secs(60);
/// The same for a pool some of whose units are held by nobody knows whom, and for best seats: as often as what is over
/// is swept.
pub(super) const UNITS_DOUBT_AFTER: Duration = Duration::from_millis(250);

/// Questions in one statement.
const QUESTIONS_MAX: usize = 512;

/// What those who were refused want to know of one event, asked of the ledger together.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    waiting: Mutex<Vec<Question>>,
    /// Whoever asks.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Question {
    seats: Vec<SeatNo>,
    answer: oneshot::Sender<Arc<Doubts>>,
}

/// How long seats and units are taken for certain, and by whom.
#[derive(Debug)]
pub(super) struct Doubts {
    seats: HashMap<SeatNo, (Duration, Owner)>,
    others: (Duration, Owner),
    pub(super) units: Duration,
}

/// Who has a seat, as far as a request can tell whether it is itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// Somebody. It may be the hold of whoever asks again under a key.
    Unknown,
    /// No hold.
    Nobody,
    /// The end of a hold's id, which is the same for every repetition of a request under a key.
    Hold(u64),
}

impl Owner {
    pub(super) fn of(hold: HoldId) -> Self {
        Self::Hold(hold.as_raw() as u64)
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => f.write_str("?"),
            Self::Nobody => f.write_str("-"),
            Self::Hold(end) => write!(f, "{end:016x}"),
        }
    }
}

impl Doubts {
    /// The same for everything.
    pub(super) fn after(time: Duration, owner: Owner) -> Self {
        let time = time.min(DOUBT_AFTER);
        Self { seats: HashMap::new(), others: (time, owner), units: time }
    }

    pub(super) fn of(&self, seat: SeatNo) -> (Duration, Owner) {
        self.seats.get(&seat).copied().unwrap_or(self.others)
    }

    async fn of_ledger(shared: &Shared, venue: &Venue, seats: &[SeatNo]) -> Self {
        let event = venue.number.0.cast_signed();
        let numbers: &Vec<i32> = &seats.iter().map(|seat| seat.0.cast_signed()).collect();
        let look = |reader: Arc<Reader>| async move {
            let sql = include_str!("../sql/doubt.sql");
            within(CALL_TIME_MAX, reader.client.query_one(sql, &[&event, numbers])).await
        };
        let Ok(row) = shared.read(look).await else { return Self::after(UNITS_DOUBT_AFTER, Owner::Unknown) };
        let now: i64 = row.get(0);
        let left = |until: Option<i64>| match until {
            Some(until) => Duration::from_millis((until - now).max(1).unsigned_abs()).min(DOUBT_AFTER),
            None => DOUBT_AFTER,
        };
        let taken: Vec<i32> = row.get::<_, Option<_>>(2).unwrap_or_default();
        let until: Vec<Option<i64>> = row.get::<_, Option<_>>(3).unwrap_or_default();
        let holds: Vec<Option<Uuid>> = row.get::<_, Option<_>>(4).unwrap_or_default();
        let taken = taken.into_iter().zip(until).zip(holds).map(|((seat, until), hold)| {
            let owner = hold.map_or(Owner::Nobody, |hold| Owner::Hold(hold.as_u128() as u64));
            (SeatNo(seat.cast_unsigned()), (left(until), owner))
        });
        Self { seats: taken.collect(), others: (DOUBT_AFTER, Owner::Unknown), units: left(row.get(1)) }
    }
}

impl Questions {
    /// Asks the ledger, after a refusal: whoever is refused next shall not be refused for too long.
    pub(super) async fn ask(&self, shared: &Shared, venue: &Venue, seats: Vec<SeatNo>) -> Arc<Doubts> {
        let (sender, mut answer) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(Question { seats, answer: sender });
        let _turn = self.turn.lock().await;
        // Whoever had the turn before asked for this one too, or this one asks for all.
        loop {
            match answer.try_recv() {
                Ok(doubts) => return doubts,
                Err(oneshot::error::TryRecvError::Empty) => self.ask_for_all(shared, venue).await,
                // Whoever asked went away in the middle of it.
                Err(oneshot::error::TryRecvError::Closed) => {
                    return Arc::new(Doubts::after(UNITS_DOUBT_AFTER, Owner::Unknown));
                }
            }
        }
    }

    async fn ask_for_all(&self, shared: &Shared, venue: &Venue) {
        let questions: Vec<Question> = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let count = waiting.len().min(QUESTIONS_MAX);
            waiting.drain(..count).collect()
        };
        let mut seats: Vec<SeatNo> = questions.iter().flat_map(|question| &question.seats).copied().collect();
        seats.sort_unstable();
        seats.dedup();
        let doubts = Arc::new(Doubts::of_ledger(shared, venue, &seats).await);
        for question in questions {
            let _ = question.answer.send(Arc::clone(&doubts));
        }
    }
}
