//! A table: things in slots that are found by their id.

use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::{Block, Booking, Hold};

/// Things in slots, found by their id. Slots of removed things are used again.
#[derive(Debug, Clone)]
pub(crate) struct Table<T> {
    /// In pieces, so that growing never moves what is there.
    pieces: Vec<Vec<Option<T>>>,
    vacant: Vec<u32>,
    by_id: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// Slots in one piece of a table.
const PIECE: usize = 4_096;
/// A thing with an id.
pub(crate) trait Identified {
    fn raw_id(&self) -> u128;
}

impl<T: Identified> Table<T> {
    pub(crate) fn with_room(ids: usize) -> Self {
        let hasher = DefaultHashBuilder::default();
        Self { pieces: Vec::new(), vacant: Vec::new(), by_id: HashTable::with_capacity(ids), hasher }
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        let place = slot as usize;
        self.pieces.get(place / PIECE)?.get(place % PIECE)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        let place = slot as usize;
        self.pieces.get_mut(place / PIECE)?.get_mut(place % PIECE)?.as_mut()
    }

    pub(crate) fn find(&self, id: u128) -> Option<u32> {
        self.by_id.find(self.hasher.hash_one(id), |&slot| self.raw_id(slot) == id).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.pieces.iter().flatten().enumerate();
        slots.filter_map(|(slot, thing)| Some((slot as u32, thing.as_ref()?)))
    }

    /// The things in a range of slots, in order.
    pub(crate) fn range(&self, slots: Range<u32>) -> impl Iterator<Item = (u32, &T)> {
        let slots = slots.start..slots.end.min(self.length());
        slots.filter_map(|slot| Some((slot, self.get(slot)?)))
    }

    /// Puts a new thing in a slot and says which.
    pub(crate) fn put(&mut self, thing: T) -> u32 {
        let id = thing.raw_id();
        let slot = self.vacant.pop().unwrap_or_else(|| self.length());
        *self.slot_mut(slot) = Some(thing);
        self.index(id, slot);
        slot
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let id = self.get(slot)?.raw_id();
        if let Ok(found) = self.by_id.find_entry(self.hasher.hash_one(id), |&other| other == slot) {
            found.remove();
        }
        self.vacant.push(slot);
        self.slot_mut(slot).take()
    }

    /// Loading: puts a thing in this very slot, in place of what was there.
    pub(crate) fn put_at(&mut self, slot: u32, thing: T) {
        let id = thing.raw_id();
        let known = self.raw_id(slot) == id;
        if !known {
            self.remove(slot);
        }
        *self.slot_mut(slot) = Some(thing);
        if !known {
            self.index(id, slot);
        }
    }

    /// Loading: lists the slots that nothing was put in.
    pub(crate) fn find_vacant(&mut self) {
        let empty = self.pieces.iter().flatten().enumerate().filter(|(_, thing)| thing.is_none());
        self.vacant = empty.map(|(slot, _)| slot as u32).collect();
        // The lowest is used first, so that the table stays dense.
        self.vacant.reverse();
    }

    fn index(&mut self, id: u128, slot: u32) {
        let Self { pieces, by_id, hasher, .. } = self;
        by_id.insert_unique(hasher.hash_one(id), slot, |&other| {
            let place = other as usize;
            hasher.hash_one(pieces[place / PIECE][place % PIECE].as_ref().map_or(0, Identified::raw_id))
        });
    }

    /// The slot, with all before it.
    fn slot_mut(&mut self, slot: u32) -> &mut Option<T> {
        let place = slot as usize;
        while self.pieces.len() <= place / PIECE {
            if let Some(last) = self.pieces.last_mut() {
                last.resize_with(PIECE, || None);
            }
            self.pieces.push(Vec::new());
        }
        let piece = &mut self.pieces[place / PIECE];
        if piece.is_empty() {
            piece.reserve_exact(PIECE);
        }
        if piece.len() <= place % PIECE {
            piece.resize_with(place % PIECE + 1, || None);
        }
        &mut piece[place % PIECE]
    }

    /// Slots there are, vacant ones included.
    pub(crate) fn length(&self) -> u32 {
        match self.pieces.split_last() {
            Some((last, full)) => (full.len() * PIECE + last.len()) as u32,
            None => 0,
        }
    }

    fn raw_id(&self, slot: u32) -> u128 {
        self.get(slot).map_or(0, Identified::raw_id)
    }
}

impl Identified for Hold {
    fn raw_id(&self) -> u128 {
        self.id.as_raw()
    }
}

impl Identified for Booking {
    fn raw_id(&self) -> u128 {
        self.id.as_raw()
    }
}

impl Identified for Block {
    fn raw_id(&self) -> u128 {
        self.id.as_raw()
    }
}
