//! What a new hold has claimed at the gate.

use std::ops::Range;
use std::sync::Arc;

use leasehold_core::{Layout, PoolNo, SeatNo, SectionNo};

use super::super::halls::Hall;
use super::buckets::Bucket;
use super::doubts::Owner;
use super::marks::Mark;

/// What a new hold asks for, and how much of it was claimed: sections first, then pools.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) hall: Arc<Hall>,
    pub(super) who: Owner,
    pub(super) sections: Vec<(u32, Vec<SeatNo>)>,
    pub(super) pools: Vec<Stock>,
    pub(super) claimed: usize,
    /// The sections of which it wants the best seats; none stands for all of them.
    pub(super) best: Vec<Option<SectionNo>>,
    /// What is to be taken back if the ledger refuses it.
    pub(super) mark: Option<Mark>,
}

impl Claim {
    /// With nothing in it yet.
    pub(super) fn of_nothing(hall: &Arc<Hall>, who: Owner) -> Self {
        let hall = Arc::clone(hall);
        Self { hall, who, sections: Vec::new(), pools: Vec::new(), claimed: 0, best: Vec::new(), mark: None }
    }

    /// Nobody can be certain what the ledger makes of it: the key stays marked.
    pub(crate) fn stay_marked(&mut self) {
        self.mark = None;
    }

    /// Its pools, each with the units that were claimed.
    pub(super) fn pools_claimed(&self) -> impl Iterator<Item = Stock> {
        let claimed = self.claimed.saturating_sub(self.sections.len());
        let pools = self.pools.iter().enumerate();
        pools
            .map(move |(place, stock)| if place < claimed { *stock } else { Stock { quantity: 0, ..*stock } })
    }
}

/// Units of a pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stock {
    pub(super) pool: PoolNo,
    pub(super) quantity: u32,
    /// Where they are claimed.
    pub(super) bucket: Bucket,
}

impl Stock {
    pub(super) fn wanted((pool, quantity): (PoolNo, u32)) -> Self {
        Self { pool, quantity, bucket: Bucket::Whole }
    }
}

/// What is asked about units of a pool.
#[derive(Debug, Clone, Copy)]
pub(super) enum Units {
    Claim,
    NoteGrant,
    NoteRefusal,
}

impl Units {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "c",
            Self::NoteGrant => "g",
            Self::NoteRefusal => "r",
        }
    }
}

/// Seats by their sections, in the order of the sections: two holds claim in the same order.
pub(super) fn sections(layout: &Layout, mut seats: Vec<SeatNo>) -> Vec<(u32, Vec<SeatNo>)> {
    seats.sort_unstable();
    seats.dedup();
    let mut sections: Vec<(u32, Vec<SeatNo>)> = Vec::new();
    for seat in seats {
        let first_after = layout
            .sections()
            .partition_point(|section| layout.rows()[section.rows.start as usize].seats.start <= seat.0);
        let section = first_after.saturating_sub(1) as u32;
        match sections.last_mut() {
            Some((last, seats)) if *last == section => seats.push(seat),
            _ => sections.push((section, vec![seat])),
        }
    }
    sections
}

/// All seats of a section.
pub(super) fn seats_of(layout: &Layout, section: u32) -> Range<u32> {
    let rows = &layout.sections()[section as usize].rows;
    let rows = &layout.rows()[rows.start as usize..rows.end as usize];
    match rows {
        [first, .., last] => first.seats.start..last.seats.end,
        [only] => only.seats.clone(),
        [] => 0..0,
    }
}
