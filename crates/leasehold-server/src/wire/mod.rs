//! JSON to the engine's words and back. Nothing is decided here.

mod from;
mod locks;
mod to;

pub(crate) use from::{
    amend_hold, begin_payment, confirm_hold, create_block, create_event, create_hold, event_patch,
    payment_failed, reason, wanted_items,
};
pub(crate) use locks::{free_lock, lock_view, ttl, ttl_advice, wanted_lock};
pub(crate) use to::{
    block_view, booking_state, booking_view, event_view, hold_view, letter, pool_count, refund_views,
    seat_counts, time,
};
