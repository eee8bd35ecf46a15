//! `leasehold run` as a process: what happens to its command, its lock and its exit code when things go wrong.
//!
//! Everything here is the real program on real stores. What the commands do they write down in files.

mod endings;
mod holders;
mod stage;
mod starting;
mod stores;
mod waiters;
