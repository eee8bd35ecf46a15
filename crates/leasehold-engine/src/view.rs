//! What readers see: durable state, by event and version.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Epoch, Event, EventNo, EventState, HoldId, Kind, Layout, Name, Policy, PoolCounts, PoolNo, Reference,
    SeatNo, SeatStatus, StatusCounts, Text, Timestamp,
};

/// The fixed part of an event.
#[derive(Debug)]
pub struct Venue {
    /// The event's number.
    pub number: EventNo,
    /// Its id.
    pub id: Name,
    /// Its name for people.
    pub name: Text,
    /// Its seats.
    pub layout: Arc<Layout>,
    /// Its pools' ids, in order.
    pub pools: Vec<Name>,
    /// When it was created.
    pub created_at: Timestamp,
}

/// The changing part of an event, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSummary {
    /// Whether it sells.
    pub state: EventState,
    /// Its version.
    pub version: Version,
    /// How the seats stand.
    pub counts: StatusCounts,
    /// How the pools stand, in order.
    pub pools: Vec<PoolCounts>,
    /// The rules.
    pub policy: Policy,
}

/// A point in an event's history. Comparable within an epoch only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// The epoch.
    pub epoch: Epoch,
    /// The event's version in it.
    pub number: u64,
}

/// Where a reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// It knows nothing.
    Nothing,
    /// It has seen everything up to this version.
    Version(Version),
}

/// How an event's seats stand: all of them, or what changed.
#[derive(Debug, Clone)]
pub enum Availability {
    /// All of them.
    Full(Arc<Snapshot>),
    /// What changed since the version asked for; each seat once, as it stands at the end.
    Changes {
        /// The seats that changed.
        seats: Vec<SeatUpdate>,
        /// How the event stands.
        summary: EventSummary,
    },
}

/// All seats at one version.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// How the event stands.
    pub summary: EventSummary,
    /// One status a seat, in the layout's order.
    pub seats: Vec<SeatStatus>,
}

/// A seat and how it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeatUpdate {
    /// The seat.
    pub seat: SeatNo,
    /// How it stands.
    pub status: SeatStatus,
}

/// One entry of an event's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The event's version after it.
    pub version: Version,
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub kind: Kind,
    /// The hold it happened to, or that the booking came from.
    pub hold: Option<HoldId>,
    /// Why the operator did it, if they said.
    pub reason: Option<Text>,
    /// Seats that changed.
    pub seats: Box<[SeatUpdate]>,
    /// Pools that changed, as they stand after it.
    pub pools: Box<[(PoolNo, PoolCounts)]>,
}

/// Payments of one hold that must be given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundsDue {
    /// The hold they were for.
    pub hold: HoldId,
    /// Who had it.
    pub holder: Option<Reference>,
    /// The payments, at least one.
    pub payments: Vec<Reference>,
}

/// A server on a store that several share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// A name of this life of it: it has another after a restart.
    pub id: String,
    /// The program's version.
    pub version: String,
    /// The address that it listens on, if it said so.
    pub listens_on: Option<String>,
    /// The address that the store sees it at, if it says so.
    pub connects_from: Option<String>,
    /// How long ago it last asked the store anything, if the store says so; a server that works does all the time.
    pub quiet_for: Option<Duration>,
    /// Whether it is the one that was asked.
    pub is_this: bool,
}

/// A part of a list.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Whether there are more.
    pub more: bool,
}

impl<T> Page<(u64, T)> {
    /// The place after which the next part begins; none after the last part.
    pub fn next(&self) -> Option<u64> {
        self.items.last().filter(|_| self.more).map(|(place, _)| *place)
    }
}

/// What a subscriber gets next.
#[derive(Debug)]
pub enum StreamStep {
    /// Changes that follow the last ones without a gap.
    Changes(Vec<Arc<Change>>),
    /// The reader is too far behind: it reads the availability again and goes on from this version.
    Reset(Version),
    /// The engine is closing.
    End,
}

/// A reader of an event's changes.
pub struct Subscription {
    next: Box<dyn FnMut() -> NextStep + Send>,
}

/// A future of the next step.
pub(crate) type NextStep = std::pin::Pin<Box<dyn Future<Output = StreamStep> + Send>>;

impl Subscription {
    pub(crate) fn new(next: impl FnMut() -> NextStep + Send + 'static) -> Self {
        Self { next: Box::new(next) }
    }

    /// Waits for the next step. Dropping the future loses nothing.
    pub async fn next(&mut self) -> StreamStep {
        (self.next)().await
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}

impl Venue {
    /// The fixed part of this event.
    pub fn of(event: &Event) -> Self {
        Self {
            number: event.number,
            id: event.id.clone(),
            name: event.name.clone(),
            layout: event.layout.clone(),
            pools: event.pools().iter().map(|pool| pool.id.clone()).collect(),
            created_at: event.created_at,
        }
    }

    /// The pool with this id.
    pub fn pool(&self, id: &str) -> Option<PoolNo> {
        self.pools.iter().position(|pool| pool.as_str() == id).map(|place| PoolNo(place as u32))
    }
}

impl EventSummary {
    /// How this event stands.
    pub fn of(event: &Event, epoch: Epoch) -> Self {
        Self {
            state: event.state,
            version: Version { epoch, number: event.version },
            counts: event.counts(),
            pools: event.pools().iter().map(PoolCounts::of).collect(),
            policy: event.policy,
        }
    }
}

impl Version {
    /// Reads `epoch-number`.
    pub fn parse(text: &str) -> Option<Self> {
        let (epoch, number) = text.split_once('-')?;
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !plain(epoch) || !plain(number) {
            return None;
        }
        Some(Self { epoch: Epoch(epoch.parse().ok()?), number: number.parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch.0, self.number)
    }
}
