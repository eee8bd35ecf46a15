//! A venue: seats in rows in sections, in a fixed order, found by name. It never changes.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::limits::{ROWS_PER_EVENT_MAX, SEATS_PER_EVENT_MAX, SECTIONS_PER_EVENT_MAX};
use crate::{BadName, Name, SeatNo, SectionNo};

/// The seats of an event and how they stand.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// All seats' names, one after the other.
    names: String,
    /// Where each seat's name ends.
    ends: Vec<u32>,
    by_name: HashTable<u32>,
    hasher: DefaultHashBuilder,
    sections: Vec<Section>,
    rows: Vec<Row>,
}

/// Rows that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Its name; empty when seats were given without one.
    pub name: String,
    /// Its rows, as places in the layout's list of rows.
    pub rows: Range<u32>,
}

/// Seats next to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its name within the section; may be empty.
    pub name: String,
    /// Its seats.
    pub seats: Range<u32>,
}

/// Why seats do not make a layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A name occurs twice.
    #[error("seat `{0}` is there twice")]
    Duplicate(String),
    /// A section comes again after another one.
    #[error("section `{0}` is there twice")]
    SectionTwice(String),
    /// Too much.
    #[error(
        "more than {SEATS_PER_EVENT_MAX} seats, {ROWS_PER_EVENT_MAX} rows or {SECTIONS_PER_EVENT_MAX} sections"
    )]
    TooLarge,
    /// A section without seats.
    #[error("section `{0}` has no seats")]
    EmptySection(String),
    /// A seat's name does not fit.
    #[error("a seat's name {0}")]
    Name(#[from] BadName),
}

impl Layout {
    /// A venue of rectangular sections: seat 3 of row 2 in section A is `A-2-3`.
    pub fn grid(sections: &[(Name, u32, u32)]) -> Result<Self, LayoutError> {
        let mut layout = Self::default();
        for (section, rows, seats_per_row) in sections {
            if *rows == 0 || *seats_per_row == 0 {
                return Err(LayoutError::EmptySection(section.to_string()));
            }
            if u64::from(*rows) * u64::from(*seats_per_row) > SEATS_PER_EVENT_MAX as u64 {
                return Err(LayoutError::TooLarge);
            }
            for row in 1..=*rows {
                for seat in 1..=*seats_per_row {
                    let name = format!("{section}-{row}-{seat}");
                    layout.push(&name, section.as_str(), &row.to_string())?;
                }
            }
        }
        layout.shrink();
        Ok(layout)
    }

    /// A venue of seats one by one, each with its section and row. Seats of one section follow each other,
    /// and so do seats of one row.
    pub fn from_seats<'a>(
        seats: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>,
    ) -> Result<Self, LayoutError> {
        let mut layout = Self::default();
        for (name, section, row) in seats {
            layout.push(name, section, row)?;
        }
        layout.shrink();
        Ok(layout)
    }

    /// How many seats there are.
    pub fn seat_count(&self) -> u32 {
        self.ends.len() as u32
    }

    /// The seat with this name.
    pub fn seat(&self, name: &str) -> Option<SeatNo> {
        let hash = self.hasher.hash_one(name);
        self.by_name.find(hash, |&seat| self.seat_name(SeatNo(seat)) == name).map(|&seat| SeatNo(seat))
    }

    /// A seat's name.
    ///
    /// # Panics
    /// When the seat is not of this layout.
    pub fn seat_name(&self, seat: SeatNo) -> &str {
        let index = seat.0 as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.names[start as usize..self.ends[index] as usize]
    }

    /// The sections, best first.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The section with this name.
    pub fn section(&self, name: &str) -> Option<SectionNo> {
        self.sections.iter().position(|section| section.name == name).map(|place| SectionNo(place as u32))
    }

    /// All rows in order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Whether a section has two rows of one name: seats of one row that did not follow each other.
    pub fn has_row_twice(&self) -> bool {
        self.sections.iter().any(|section| {
            let rows = &self.rows[section.rows.start as usize..section.rows.end as usize];
            let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
            names.len() < rows.len()
        })
    }

    fn push(&mut self, name: &str, section: &str, row: &str) -> Result<(), LayoutError> {
        Name::parse(name)?;
        let hash = self.hasher.hash_one(name);
        if self.seat(name).is_some() {
            return Err(LayoutError::Duplicate(name.to_owned()));
        }
        if self.ends.len() >= SEATS_PER_EVENT_MAX {
            return Err(LayoutError::TooLarge);
        }
        self.enter_section(section)?;
        let seat = self.ends.len() as u32;
        self.enter_row(row, seat);
        if self.rows.len() > ROWS_PER_EVENT_MAX {
            return Err(LayoutError::TooLarge);
        }
        self.names.push_str(name);
        self.ends.push(self.names.len() as u32);
        let (names, ends, hasher) = (&self.names, &self.ends, &self.hasher);
        self.by_name.insert_unique(hash, seat, |&other| {
            let index = other as usize;
            let start = if index == 0 { 0 } else { ends[index - 1] };
            hasher.hash_one(&names[start as usize..ends[index] as usize])
        });
        Ok(())
    }

    fn enter_section(&mut self, name: &str) -> Result<(), LayoutError> {
        if self.sections.last().is_some_and(|section| section.name == name) {
            return Ok(());
        }
        if self.section(name).is_some() {
            return Err(LayoutError::SectionTwice(name.to_owned()));
        }
        if self.sections.len() >= SECTIONS_PER_EVENT_MAX {
            return Err(LayoutError::TooLarge);
        }
        let first = self.rows.len() as u32;
        self.sections.push(Section { name: name.to_owned(), rows: first..first });
        Ok(())
    }

    fn enter_row(&mut self, name: &str, seat: u32) {
        let section = self.sections.last_mut().expect("a section was entered before its row");
        let starts_section = section.rows.is_empty();
        match self.rows.last_mut() {
            Some(row) if !starts_section && row.name == name => row.seats.end = seat + 1,
            _ => {
                self.rows.push(Row { name: name.to_owned(), seats: seat..seat + 1 });
                section.rows.end = self.rows.len() as u32;
            }
        }
    }

    fn shrink(&mut self) {
        self.names.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.rows.shrink_to_fit();
        let (names, ends, hasher) = (&self.names, &self.ends, &self.hasher);
        self.by_name.shrink_to_fit(|&other| {
            let index = other as usize;
            let start = if index == 0 { 0 } else { ends[index - 1] };
            hasher.hash_one(&names[start as usize..ends[index] as usize])
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_names_its_seats_and_finds_them() {
        let layout =
            Layout::grid(&[(Name::parse("A").unwrap(), 2, 3), (Name::parse("B").unwrap(), 1, 1)]).unwrap();
        assert_eq!(layout.seat_count(), 7);
        let seat = layout.seat("A-2-3").unwrap();
        assert_eq!(layout.seat_name(seat), "A-2-3");
        assert_eq!(layout.seat("A-3-1"), None);
        assert_eq!(layout.sections().len(), 2);
        assert_eq!(layout.rows().len(), 3);
        assert_eq!(layout.rows()[1].seats, 3..6);
    }

    #[test]
    fn a_row_twice_is_seen() {
        let rows =
            |seats: [(&'static str, &'static str, &'static str); 3]| Layout::from_seats(seats).unwrap();
        assert!(rows([("A-1", "A", "1"), ("A-2", "A", "2"), ("A-3", "A", "1")]).has_row_twice());
        assert!(rows([("A-1", "A", ""), ("A-2", "A", "2"), ("A-3", "A", "")]).has_row_twice());
        assert!(!rows([("A-1", "A", "1"), ("A-2", "A", "1"), ("A-3", "A", "2")]).has_row_twice());
        assert!(!rows([("A-1", "A", "1"), ("B-2", "B", "1"), ("C-3", "C", "1")]).has_row_twice());
    }

    #[test]
    fn a_seat_or_section_twice_is_refused() {
        let twice = Layout::from_seats([("A-1", "A", ""), ("A-1", "A", "")]);
        assert_eq!(twice.unwrap_err(), LayoutError::Duplicate("A-1".into()));
        let again = Layout::from_seats([("A-1", "A", ""), ("B-1", "B", ""), ("A-2", "A", "")]);
        assert_eq!(again.unwrap_err(), LayoutError::SectionTwice("A".into()));
    }
}
