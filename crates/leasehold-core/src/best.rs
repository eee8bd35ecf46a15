//! Best available: free seats next to each other, chosen without leaving a single seat between neighbours.
//!
//! Free seats are one bit each. A search walks the rows in the venue's order and looks at their runs
//! of free seats, a word at a time, so a venue of 50,000 seats takes microseconds.

use std::ops::Range;

use crate::{Layout, SeatNo, SectionNo};

/// The best `count` of the seats that `is_free` says are free; the rules would choose the same.
///
/// For whoever wants to propose seats from what it knows; the rules then decide.
pub fn best_seats(
    layout: &Layout,
    count: u32,
    section: Option<SectionNo>,
    is_free: impl Fn(SeatNo) -> bool,
) -> Option<Vec<SeatNo>> {
    let mut free = FreeSeats::all(layout.seat_count());
    (0..layout.seat_count())
        .map(SeatNo)
        .filter(|&seat| !is_free(seat))
        .for_each(|seat| free.set(seat, false));
    free.best(layout, count, section)
}

/// Which seats of an event are free, one bit a seat.
#[derive(Debug, Clone)]
pub(crate) struct FreeSeats {
    words: Vec<u64>,
}

impl FreeSeats {
    pub(crate) fn all(seat_count: u32) -> Self {
        let mut words = vec![u64::MAX; (seat_count as usize).div_ceil(64)];
        if let Some(last) = words.last_mut()
            && !seat_count.is_multiple_of(64)
        {
            *last = (1 << (seat_count % 64)) - 1;
        }
        Self { words }
    }

    pub(crate) fn set(&mut self, seat: SeatNo, free: bool) {
        let bit = 1 << (seat.0 % 64);
        let word = &mut self.words[(seat.0 / 64) as usize];
        if free { *word |= bit } else { *word &= !bit }
    }

    #[cfg(test)]
    fn get(&self, seat: u32) -> bool {
        self.words[(seat / 64) as usize] >> (seat % 64) & 1 == 1
    }

    /// The first seat at or after `from` and before `end` that is free, or is not.
    fn next(&self, from: u32, end: u32, free: bool) -> u32 {
        let mut seat = from;
        while seat < end {
            let word = self.words[(seat / 64) as usize];
            let word = (if free { word } else { !word }) >> (seat % 64);
            if word != 0 {
                return (seat + word.trailing_zeros()).min(end);
            }
            seat = (seat / 64 + 1) * 64;
        }
        end
    }

    /// The runs of free seats within `seats`.
    fn runs(&self, seats: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
        let mut from = seats.start;
        std::iter::from_fn(move || {
            let start = self.next(from, seats.end, true);
            if start == seats.end {
                return None;
            }
            let end = self.next(start, seats.end, false);
            from = end;
            Some(start..end)
        })
    }

    /// Whether so many free seats are next to each other in a row. Looks at 64 seats at a time, also where single seats are
    /// all that is left and a venue has tens of thousands of runs.
    fn has_together(&self, row: &Range<u32>, count: u32) -> bool {
        let mut run = 0;
        for place in row.start / 64..row.end.div_ceil(64) {
            let mut word = self.words[place as usize];
            if place == row.start / 64 {
                word &= u64::MAX << (row.start % 64);
            }
            if place == row.end / 64 {
                word &= (1 << (row.end % 64)) - 1;
            }
            if run + word.trailing_ones() >= count || has_so_many_together(word, count) {
                return true;
            }
            run = if word == u64::MAX { run + 64 } else { word.leading_ones() };
        }
        false
    }

    /// The best `count` free seats: in one row without leaving a single seat alone, else in one row,
    /// else in neighbouring rows of one section. None when no section has as many in the longest runs of its rows.
    pub(crate) fn best(
        &self,
        layout: &Layout,
        count: u32,
        section: Option<SectionNo>,
    ) -> Option<Vec<SeatNo>> {
        let sections = match section {
            Some(section) => {
                let place = section.0 as usize;
                place..place + 1
            }
            None => 0..layout.sections().len(),
        };
        let sections = &layout.sections()[sections];
        let mut with_orphan = None;
        let rows = sections.iter().flat_map(|section| &layout.rows()[as_places(&section.rows)]);
        for row in rows.filter(|row| self.has_together(&row.seats, count)) {
            match self.best_in_row(row.seats.clone(), count) {
                Some(Placed { first, leaves_orphan: false }) => return Some(seats(first..first + count)),
                Some(placed) => with_orphan = with_orphan.or(Some(placed)),
                None => {}
            }
        }
        if let Some(Placed { first, .. }) = with_orphan {
            return Some(seats(first..first + count));
        }
        sections.iter().find_map(|section| {
            self.best_in_section(
                layout.rows()[as_places(&section.rows)].iter().map(|row| row.seats.clone()),
                count,
            )
        })
    }

    /// The place in this row nearest to its middle, preferably one that leaves no single seat alone.
    fn best_in_row(&self, row: Range<u32>, count: u32) -> Option<Placed> {
        let wanted_first = row.start + (row.end - row.start).saturating_sub(count) / 2;
        let mut best: Option<(bool, u32, u32)> = None;
        for run in self.runs(row).filter(|run| run.end - run.start >= count) {
            let last_first = run.end - count;
            let middle = wanted_first.clamp(run.start, last_first);
            // Only places next to the middle or at the run's ends can be the best of their kind.
            let candidates = [middle.saturating_sub(1), middle, middle + 1, run.start, last_first];
            for first in candidates.into_iter().filter(|first| (run.start..=last_first).contains(first)) {
                let orphan = first - run.start == 1 || run.end - first - count == 1;
                let candidate = (orphan, first.abs_diff(wanted_first), first);
                best = Some(best.map_or(candidate, |best| best.min(candidate)));
            }
        }
        best.map(|(leaves_orphan, _, first)| Placed { first, leaves_orphan })
    }

    /// Seats in rows that are as near to each other as can be: the longest run of each, of the fewest rows one behind
    /// the other that have enough. No row has enough by itself.
    fn best_in_section(&self, rows: impl Iterator<Item = Range<u32>>, count: u32) -> Option<Vec<SeatNo>> {
        let mut longest: Vec<Range<u32>> = Vec::new();
        let (mut from, mut total) = (0, 0);
        let mut fewest: Option<Range<usize>> = None;
        for (to, row) in rows.enumerate() {
            longest.push(self.runs(row).max_by_key(Range::len).unwrap_or(0..0));
            total += longest[to].len();
            while from < to && total - longest[from].len() >= count as usize {
                total -= longest[from].len();
                from += 1;
            }
            if total >= count as usize && fewest.as_ref().is_none_or(|rows| to - from < rows.len() - 1) {
                fewest = Some(from..to + 1);
                if to - from == 1 {
                    break;
                }
            }
        }
        let chosen: Vec<SeatNo> =
            longest[fewest?].iter().cloned().flatten().take(count as usize).map(SeatNo).collect();
        debug_assert_eq!(chosen.len(), count as usize);
        Some(chosen)
    }
}

struct Placed {
    first: u32,
    leaves_orphan: bool,
}

/// Whether so many bits of a word are next to each other.
fn has_so_many_together(word: u64, count: u32) -> bool {
    let (mut starts, mut length) = (word, 1);
    while length < count && starts != 0 {
        let step = length.min(count - length).min(63);
        // Where a run of `length` begins and another one `step` later, one of both together begins.
        starts &= starts >> step;
        length += step;
    }
    starts != 0
}

fn seats(range: Range<u32>) -> Vec<SeatNo> {
    range.map(SeatNo).collect()
}

fn as_places(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;

    fn venue(rows: u32, seats: u32) -> (Layout, FreeSeats) {
        let layout = Layout::grid(&[(Name::parse("A").unwrap(), rows, seats)]).unwrap();
        let free = FreeSeats::all(layout.seat_count());
        (layout, free)
    }

    fn numbers(found: Option<Vec<SeatNo>>) -> Vec<u32> {
        found.unwrap_or_default().into_iter().map(|seat| seat.0).collect()
    }

    #[test]
    fn seats_come_from_the_middle_of_the_first_row() {
        let (layout, free) = venue(2, 10);
        assert_eq!(numbers(free.best(&layout, 2, None)), [4, 5]);
    }

    #[test]
    fn a_place_that_leaves_a_single_seat_is_avoided() {
        let (layout, mut free) = venue(1, 10);
        free.set(SeatNo(3), false);
        free.set(SeatNo(8), false);
        // Free: 0 1 2 | 4 5 6 7 | 9. The middle pair 4,5 leaves 6,7 together.
        assert_eq!(numbers(free.best(&layout, 2, None)), [4, 5]);
        // Three of 4..8 would leave one alone; 0..3 leaves none.
        assert_eq!(numbers(free.best(&layout, 3, None)), [0, 1, 2]);
    }

    #[test]
    fn a_row_with_an_orphan_is_better_than_two_rows() {
        let (layout, free) = venue(2, 4);
        assert_eq!(numbers(free.best(&layout, 3, None)).len(), 3);
        let rows: Vec<u32> = numbers(free.best(&layout, 3, None)).iter().map(|seat| seat / 4).collect();
        assert_eq!(rows, [0, 0, 0]);
    }

    #[test]
    fn a_large_party_is_spread_over_neighbouring_rows() {
        let (layout, mut free) = venue(5, 4);
        // Rows 1 and 2 have two seats together, row 3 has none, rows 0 and 4 have all.
        (4..16).filter(|seat| ![4, 5, 10, 11].contains(seat)).for_each(|seat| free.set(SeatNo(seat), false));
        assert_eq!(numbers(free.best(&layout, 6, None)), [0, 1, 2, 3, 4, 5]);
        assert_eq!(numbers(free.best(&layout, 7, None)), [0, 1, 2, 3, 4, 5, 10]);
        free.set(SeatNo(0), false);
        free.set(SeatNo(3), false);
        // Rows 2 to 4 have as many as rows 0 to 2: those at the front are better.
        assert_eq!(numbers(free.best(&layout, 6, None)), [1, 2, 4, 5, 10, 11]);
        free.set(SeatNo(5), false);
        assert_eq!(numbers(free.best(&layout, 6, None)), [10, 11, 16, 17, 18, 19]);
    }

    #[test]
    fn a_section_gives_its_own_seats_only() {
        let sections =
            [("A", 1, 6), ("B", 2, 4)].map(|(name, rows, seats)| (Name::parse(name).unwrap(), rows, seats));
        let layout = Layout::grid(&sections).unwrap();
        let mut free = FreeSeats::all(layout.seat_count());
        let (a, b) = (Some(SectionNo(0)), Some(SectionNo(1)));
        assert_eq!(numbers(free.best(&layout, 2, None)), [2, 3]);
        assert_eq!(numbers(free.best(&layout, 2, a)), [2, 3]);
        assert_eq!(numbers(free.best(&layout, 2, b)), [6, 7]);
        assert_eq!(numbers(free.best(&layout, 8, b)), (6..14).collect::<Vec<u32>>());
        // Nobody is spread over two sections.
        assert_eq!(free.best(&layout, 7, a), None);
        assert_eq!(free.best(&layout, 9, None), None);
        (0..6).for_each(|seat| free.set(SeatNo(seat), false));
        assert_eq!(free.best(&layout, 1, a), None);
        assert_eq!(numbers(free.best(&layout, 1, None)), [6]);
    }

    #[test]
    fn what_is_together_is_seen_wherever_it_begins_and_ends() {
        let mut random = crate::random::Random::new(11);
        for _ in 0..2_000 {
            let (layout, mut free) = venue(3, 1 + random.below(200) as u32);
            let often = 1 + random.below(12);
            for seat in 0..layout.seat_count() {
                free.set(SeatNo(seat), !random.once_in(often));
            }
            let count = 1 + random.below(70) as u32;
            for row in layout.rows() {
                let longest = free.runs(row.seats.clone()).map(|run| run.len()).max().unwrap_or(0);
                assert_eq!(
                    free.has_together(&row.seats, count),
                    longest >= count as usize,
                    "{row:?} {count}"
                );
            }
        }
    }

    #[test]
    fn too_many_is_none() {
        let (layout, mut free) = venue(1, 4);
        assert_eq!(free.best(&layout, 5, None), None);
        free.set(SeatNo(1), false);
        assert!(!free.get(1));
        // Seats of different runs in one row are not together.
        assert_eq!(free.best(&layout, 3, None), None);
    }
}
