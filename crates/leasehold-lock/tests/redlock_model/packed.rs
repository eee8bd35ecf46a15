//! How a state is packed into one number.
//!
//! Bits, from the lowest: three servers of 24 bits, two clients of 12 bits, then what concerns all.
//! A server: lock 2, counter 3, out 1, then per client 9: vote 4, raise 4, older raise 1.
//! A client: phase 3, highest counter seen 3, fence proposed 3, fence proposed before 3.
//! All: per client "began after the other was granted" 2, crashed 1, active at the crash 2, duplicates left
//! 2, and a bit that is always set.

use crate::world::World;

pub(super) const SERVER_BITS: u32 = 24;
pub(super) const SERVER_MASK: u128 = (1 << SERVER_BITS) - 1;

pub(super) const LOCK: Field = Field { at: 0, bits: 2 };
pub(super) const COUNTER: Field = Field { at: 2, bits: 3 };
pub(super) const OUT: Field = Field { at: 5, bits: 1 };
pub(super) const VOTE: Field = Field { at: 6, bits: 4 };
pub(super) const RAISE: Field = Field { at: 10, bits: 4 };
pub(super) const OLDER_RAISE: Field = Field { at: 14, bits: 1 };
pub(super) const PER_CLIENT_BITS: u32 = 9;

pub(super) const CLIENT_AT: u32 = 72;
pub(super) const CLIENT_BITS: u32 = 12;
pub(super) const PHASE: Field = Field { at: 0, bits: 3 };
pub(super) const HIGHEST: Field = Field { at: 3, bits: 3 };
pub(super) const FENCE: Field = Field { at: 6, bits: 3 };
pub(super) const FENCE_BEFORE: Field = Field { at: 9, bits: 3 };

pub(super) const ALL_AT: u32 = 96;
pub(super) const AFTER: Field = Field { at: 0, bits: 1 };
pub(super) const CRASHED: Field = Field { at: 2, bits: 1 };
pub(super) const ACTIVE_AT_CRASH: Field = Field { at: 3, bits: 1 };
pub(super) const DUPLICATES: Field = Field { at: 5, bits: 2 };
pub(super) const ALWAYS: Field = Field { at: 7, bits: 1 };

/// A few bits at a place.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub(super) at: u32,
    bits: u32,
}

impl World {
    pub(super) fn server(self, server: usize, field: Field) -> u8 {
        self.get(server as u32 * SERVER_BITS, field)
    }

    pub(super) fn set_server(&mut self, server: usize, field: Field, value: u8) {
        self.set(server as u32 * SERVER_BITS, field, value);
    }

    pub(super) fn message(self, server: usize, client: usize, field: Field) -> u8 {
        self.get(server as u32 * SERVER_BITS + client as u32 * PER_CLIENT_BITS, field)
    }

    pub(super) fn set_message(&mut self, server: usize, client: usize, field: Field, value: u8) {
        self.set(server as u32 * SERVER_BITS + client as u32 * PER_CLIENT_BITS, field, value);
    }

    pub(super) fn client(self, client: usize, field: Field) -> u8 {
        self.get(CLIENT_AT + client as u32 * CLIENT_BITS, field)
    }

    pub(super) fn set_client(&mut self, client: usize, field: Field, value: u8) {
        self.set(CLIENT_AT + client as u32 * CLIENT_BITS, field, value);
    }

    pub(super) fn all(self, field: Field, index: usize) -> u8 {
        self.get(ALL_AT + index as u32, field)
    }

    pub(super) fn set_all(&mut self, field: Field, index: usize, value: u8) {
        self.set(ALL_AT + index as u32, field, value);
    }

    pub(super) fn get(self, base: u32, field: Field) -> u8 {
        (self.0 >> (base + field.at)) as u8 & ((1 << field.bits) - 1)
    }

    pub(super) fn set(&mut self, base: u32, field: Field, value: u8) {
        debug_assert!(value >> field.bits == 0, "the value has room");
        let mask = u128::from((1u8 << field.bits) - 1) << (base + field.at);
        self.0 = self.0 & !mask | u128::from(value) << (base + field.at);
    }
}
