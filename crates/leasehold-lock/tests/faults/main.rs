//! What locks do when servers fail, restart, stall and forget, and when their holders do.
//!
//! Every test does something bad to a real server or process, checks that it happened, and then checks what
//! was promised. One program for all of them, because linking takes longer than most.

mod support;

mod failover;
mod sentinel;
mod silence;
mod silent_master;
mod slots;
mod told;
mod wiped;

mod redlock_down;
mod redlock_healing;
mod redlock_memory;
mod redlock_set;
mod redlock_slow;

mod clocks;
mod load;
mod paused_holder;
mod sentry;

mod pitfalls;
mod pitfalls_child;
mod pitfalls_guard;
mod pitfalls_late;
mod pitfalls_several;
mod pitfalls_unknown;
mod pitfalls_waiting;
