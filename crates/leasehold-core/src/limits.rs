//! Every maximum of the rules in one place.

use crate::Millis;

/// Events in one data set.
pub const EVENTS_MAX: usize = 10_000;
/// Seats of one event.
pub const SEATS_PER_EVENT_MAX: usize = 1_000_000;
/// Pools of one event.
pub const POOLS_PER_EVENT_MAX: usize = 1_000;
/// Units of one pool.
pub const POOL_CAPACITY_MAX: u32 = 1_000_000_000;
/// Sections of one event.
pub const SECTIONS_PER_EVENT_MAX: usize = 2_000;
/// Rows of one event.
pub const ROWS_PER_EVENT_MAX: usize = 100_000;
/// Items in one request, and items of one hold.
pub const ITEMS_PER_HOLD_MAX: usize = 100;
/// Seats one best-available item may ask for.
pub const BEST_COUNT_MAX: u32 = 100;
/// How often one request may have the best seats chosen: each time may look through the whole hall.
pub const BEST_ITEMS_MAX: usize = 10;
/// Seats in one block.
pub const SEATS_PER_BLOCK_MAX: usize = 10_000;
/// The shortest life of a hold.
pub const HOLD_TTL_MIN: Millis = Millis(1_000);
/// The longest life of a hold, extensions included.
pub const HOLD_TTL_MAX: Millis = Millis(24 * 60 * 60 * 1_000);
/// The longest payment.
pub const PAYMENT_MAX: Millis = Millis(7 * 24 * 60 * 60 * 1_000);
/// A declined payment leaves the buyer at least this long to try again.
pub const AFTER_DECLINE_MIN: Millis = Millis(60_000);
/// Extensions of one hold.
pub const EXTENDS_MAX: u32 = 10_000;
/// Holds that ended without any payment and are still remembered, so that a late payment finds them.
pub const ENDED_HOLDS_MAX: usize = 200_000;
/// How long they are remembered at most.
pub const ENDED_HOLDS_AGE_MAX: Millis = Millis(24 * 60 * 60 * 1_000);
/// Holds that are over and that one command ends to find what it asks for, beside those that had its seats.
pub const EXPIRIES_PER_COMMAND_MAX: usize = 64;
/// Payments that may be begun for one hold.
pub const PAYMENTS_PER_HOLD_MAX: usize = 20;
/// Holds that ended with void payments only and are still remembered.
pub const DECLINED_HOLDS_MAX: usize = 200_000;
/// How long they are remembered at most.
pub const DECLINED_HOLDS_AGE_MAX: Millis = Millis(30 * 24 * 60 * 60 * 1_000);
/// Bytes of a name (event, seat, pool, section, row).
pub const NAME_BYTES_MAX: usize = 128;
/// Bytes of a reference of the caller's (holder, order, payment).
pub const REFERENCE_BYTES_MAX: usize = 255;
/// Bytes of free text (an event's name, a reason).
pub const TEXT_BYTES_MAX: usize = 500;

const _: () = assert!(HOLD_TTL_MIN.0 < HOLD_TTL_MAX.0);
const _: () = assert!(AFTER_DECLINE_MIN.0 >= HOLD_TTL_MIN.0);
const _: () = assert!(SEATS_PER_EVENT_MAX <= u32::MAX as usize);
const _: () = assert!(POOL_CAPACITY_MAX <= i32::MAX as u32);
