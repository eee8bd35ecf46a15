//! What the users were told: which holds they got and how each of them ended.

use leasehold_api::ItemView;

/// A hold that was granted.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    /// The hold's id.
    pub(crate) hold_id: String,
    /// What was held.
    pub(crate) items: Vec<ItemView>,
    /// What became of it.
    pub(crate) ending: Ending,
}

/// What became of a granted hold.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    /// It was left to expire, on purpose.
    Kept,
    /// It was sold, and this is what the booking says was sold.
    Sold(Vec<ItemView>),
    /// The server said no to the sale.
    Refused,
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
                Ending::Kept | Ending::Refused | Ending::Unresolved => &[],
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
            Ending::Kept | Ending::Refused | Ending::Unresolved => 0,
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

fn units(items: &[ItemView], pool: &str) -> u64 {
    let of_pool = items.iter().filter(|item| item.pool.as_deref() == Some(pool));
    of_pool.map(|item| u64::from(item.quantity.unwrap_or(1))).sum()
}
