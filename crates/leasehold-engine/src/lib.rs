//! Reservations on a durable store.
//!
//! [`Engine`] is what the server talks to: commands, reads and the stream of changes. Its rules are those of
//! `leasehold-core`; an implementation adds durability, idempotency and concurrency. [`EmbeddedEngine`]
//! is the default: one process, one SQLite file. With the feature `cluster` there is `ClusterEngine`: any number
//! of processes on one PostgreSQL database.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use leasehold_core::*;
//! use leasehold_engine::{EmbeddedEngine, EmbeddedOptions, Engine, Outcome, Request};
//!
//! let folder = tempfile::tempdir()?;
//! let engine = EmbeddedEngine::open(EmbeddedOptions::new(folder.path().join("shop.db")))?;
//! let layout = Layout::from_seats([("A-1", "A", ""), ("A-2", "A", "")])?;
//! engine.execute(Request::new(Command::CreateEvent(CreateEvent {
//!     id: Name::parse("gala")?,
//!     name: Text::parse("Gala")?,
//!     layout: Arc::new(layout),
//!     pools: vec![],
//!     policy: Policy::default(),
//! }))).await?;
//!
//! let venue = engine.venue("gala").await?.expect("just created");
//! let done = engine.execute(Request::new(Command::CreateHold(CreateHold {
//!     event: venue.number,
//!     id: leasehold_engine::new_hold_id(),
//!     items: vec![ItemRequest::Seat(venue.layout.seat("A-2").expect("a seat"))],
//!     holder: None,
//!     ttl: None,
//! }))).await?;
//! assert!(matches!(done.outcome, Outcome::Hold(_)));
//! engine.close().await;
//! # Ok(()) }
//! ```

mod clock;
mod engine;
mod log;
mod meters;
mod secret;
mod view;

mod answer;
mod bytes;
mod feed;
mod image;

#[cfg(feature = "cluster")]
mod cluster;
mod embedded;

pub use clock::Clock;
#[cfg(feature = "cluster")]
pub use cluster::{
    ClusterEngine, ClusterOptions, DataFile, GateMeters, LEDGER_CONNECTIONS_MAX, LedgerFacts, LedgerReport,
    MoveError, Moved, OpenLedgerError, check_ledger, ledger_facts,
};
pub use embedded::{CheckReport, EmbeddedEngine, EmbeddedOptions, OpenError, backup_file, check_file};
pub use engine::{Done, Engine, EngineError, IdempotencyKey, Outcome, Request};
pub use log::{About, LogPage, LogQuery, SeatOwner};
pub use meters::Meters;
pub use secret::{HoldSecret, SecretKey};
pub use view::{
    Availability, Change, EventSummary, Page, RefundsDue, Replica, SeatUpdate, Since, Snapshot, StreamStep,
    Subscription, Venue, Version,
};

use leasehold_core::{BlockId, BookingId, HoldId};

/// A new hold's id: sortable by time, and not to be guessed.
pub fn new_hold_id() -> HoldId {
    HoldId::from_raw(uuid::Uuid::now_v7().as_u128()).expect("a version 7 UUID is not zero")
}

/// A new booking's id.
pub fn new_booking_id() -> BookingId {
    BookingId::from_raw(uuid::Uuid::now_v7().as_u128()).expect("a version 7 UUID is not zero")
}

/// A new block's id.
pub fn new_block_id() -> BlockId {
    BlockId::from_raw(uuid::Uuid::now_v7().as_u128()).expect("a version 7 UUID is not zero")
}
