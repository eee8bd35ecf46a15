//! What the users were told: which holds they got and how each of them ended.
//!
//! Moments are durations since the start of the run, by the load generator's own clock.

use std::time::Duration;

use leasehold_api::ItemView;

/// Two clocks differ by no more than this part of what they measure, and by one step of the coarser one.
const CLOCKS_DIFFER_BY: u32 = 100;
const CLOCK_STEP: Duration = Duration::from_millis(20);

/// A hold that was granted.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    /// The hold's id.
    pub(crate) hold_id: String,
    /// What was held.
    pub(crate) items: Vec<ItemView>,
    /// When the user was told.
    pub(crate) told: Duration,
    /// Before this it is not over by itself, see [`surely_until`].
    pub(crate) lives_until: Duration,
    /// What became of it.
    pub(crate) ending: Ending,
}

/// What became of a granted hold.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    /// It was left to expire: on purpose, or because the server was too busy each time it was asked to sell it.
    Kept,
    /// It was sold, and this is what the booking says was sold.
    Sold(Vec<ItemView>),
    /// The server said no to the sale.
    Refused {
        /// When the user was told.
        told: Duration,
    },
    /// No answer came to the confirm, nor to its repeats: it may be sold.
    Unresolved,
}

/// All that one user was told, or all of them.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The holds granted.
    pub(crate) grants: Vec<Grant>,
    /// Hold requests that never got an answer: each may have taken something until its TTL is over.
    pub(crate) holds_unresolved: u64,
    /// Grants and sales whose documents could not be read.
    pub(crate) unreadable: u64,
    /// Whether some user asked for every seat in turn, and got a yes or a 409 each time.
    pub(crate) every_seat_decided: bool,
}

impl Told {
    /// Adds what another user was told.
    pub(crate) fn merge(&mut self, other: Told) {
        self.grants.extend(other.grants);
        self.holds_unresolved += other.holds_unresolved;
        self.unreadable += other.unreadable;
        self.every_seat_decided |= other.every_seat_decided;
    }

    /// The seats acknowledged as sold, each as often as it was.
    pub(crate) fn seats_sold(&self) -> impl Iterator<Item = &str> {
        self.grants
            .iter()
            .flat_map(|grant| match &grant.ending {
                Ending::Sold(items) => items.as_slice(),
                Ending::Kept | Ending::Refused { .. } | Ending::Unresolved => &[],
            })
            .filter_map(|item| item.seat.as_deref())
    }

    /// The seats that may be sold: their confirm has no answer.
    pub(crate) fn seats_unresolved(&self) -> impl Iterator<Item = &str> {
        self.unresolved().flat_map(|grant| &grant.items).filter_map(|item| item.seat.as_deref())
    }

    /// Units of a pool acknowledged as sold.
    pub(crate) fn units_sold(&self, pool: &str) -> u64 {
        let sold = self.grants.iter().map(|grant| match &grant.ending {
            Ending::Sold(items) => units(items, pool),
            Ending::Kept | Ending::Refused { .. } | Ending::Unresolved => 0,
        });
        sold.sum()
    }

    /// Units of a pool that may be sold.
    pub(crate) fn units_unresolved(&self, pool: &str) -> u64 {
        self.unresolved().map(|grant| units(&grant.items, pool)).sum()
    }

    /// The holds whose confirm has no answer.
    pub(crate) fn unresolved(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(|grant| matches!(grant.ending, Ending::Unresolved))
    }
}

/// Until when a hold surely lives that was first asked for at this moment and was told to last this long. It was granted
/// no earlier than that; the server's clock may run a little faster than ours.
pub(crate) fn surely_until(asked: Duration, expires_in_ms: u64) -> Duration {
    let lasts = Duration::from_millis(expires_in_ms);
    asked + lasts.saturating_sub(lasts / CLOCKS_DIFFER_BY + CLOCK_STEP)
}

fn units(items: &[ItemView], pool: &str) -> u64 {
    let of_pool = items.iter().filter(|item| item.pool.as_deref() == Some(pool));
    of_pool.map(|item| u64::from(item.quantity.unwrap_or(1))).sum()
}
