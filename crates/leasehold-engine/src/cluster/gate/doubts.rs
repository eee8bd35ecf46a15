//! Doubts: how long what the gate has noted is good, before one caller asks the ledger again.

use std::time::Duration;

use hashbrown::HashMap;
use leasehold_core::SeatNo;

use super::super::connection::{CALL_TIME_MAX, within};
use super::super::shared::{Reader, Shared};
use crate::Venue;

/// The longest that anything is good for: the gate and the ledger may differ for reasons nobody thought of. Asking costs
/// two statements: the hold, and when to ask again.
pub(super) const DOUBT_AFTER: Duration = Duration::from_secs(60);
/// The same for a pool some of whose units are held by nobody knows whom: as often as what is over is swept.
pub(super) const UNITS_DOUBT_AFTER: Duration = Duration::from_millis(250);

/// How long seats and units are taken for certain.
#[derive(Debug)]
pub(super) struct Doubts {
    seats: HashMap<SeatNo, Duration>,
    others: Duration,
    pub(super) units: Duration,
}

impl Doubts {
    /// The same for everything.
    pub(super) fn after(time: Duration) -> Self {
        let time = time.min(DOUBT_AFTER);
        Self { seats: HashMap::new(), others: time, units: time }
    }

    pub(super) fn of(&self, seat: SeatNo) -> Duration {
        self.seats.get(&seat).copied().unwrap_or(self.others)
    }

    /// Asks the ledger, after a refusal: whoever is refused next shall not be refused for too long.
    pub(super) async fn of_ledger(shared: &Shared, venue: &Venue, seats: &[SeatNo]) -> Self {
        let event = venue.number.0.cast_signed();
        let numbers: &Vec<i32> = &seats.iter().map(|seat| seat.0.cast_signed()).collect();
        let look = |reader: std::sync::Arc<Reader>| async move {
            let sql = include_str!("../sql/doubt.sql");
            within(CALL_TIME_MAX, reader.client.query_one(sql, &[&event, numbers])).await
        };
        let Ok(row) = shared.read(look).await else { return Self::after(UNITS_DOUBT_AFTER) };
        let now: i64 = row.get(0);
        let left = |until: i64| Duration::from_millis((until - now).max(1).unsigned_abs()).min(DOUBT_AFTER);
        let held: Option<Vec<i32>> = row.get(2);
        let until: Option<Vec<i64>> = row.get(3);
        let held = held.into_iter().flatten().zip(until.into_iter().flatten());
        Self {
            seats: held.map(|(seat, until)| (SeatNo(seat.cast_unsigned()), left(until))).collect(),
            others: DOUBT_AFTER,
            units: row.get::<_, Option<i64>>(1).map_or(DOUBT_AFTER, left),
        }
    }
}
