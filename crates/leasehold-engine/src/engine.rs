//! The trait every engine implements, and what goes in and out of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Block, Booking, BookingId, Command, Hold, HoldId, ItemRequest, Name, Reference, Refusal, Timestamp,
};

use crate::{
    Availability, EventSummary, HoldSecret, LogPage, LogQuery, Meters, Page, RefundsDue, Replica, SecretKey,
    Since, Subscription, Venue, Version,
};

/// A durable, concurrent home of the rules.
///
/// What is answered is durable. Reads show durable state only. Cancelling any future leaves the
/// engine whole: a command that was already accepted is carried out, and a repetition under its
/// idempotency key tells how it went.
#[async_trait]
pub trait Engine: std::fmt::Debug + Send + Sync + 'static {
    /// The fixed part of an event: its number, seats and pools.
    async fn venue(&self, event: &str) -> Result<Option<Arc<Venue>>, EngineError>;

    /// Turns away at once, from memory, what plainly cannot be held now. None says nothing.
    fn gate(&self, venue: &Venue, items: &[ItemRequest]) -> Option<Refusal>;

    /// Carries out a command, once for each idempotency key.
    async fn execute(&self, request: Request) -> Result<Done, EngineError>;

    /// How an event stands.
    async fn event(&self, venue: &Venue) -> Result<EventSummary, EngineError>;

    /// Whether the event has had a version of the present epoch. An engine that reads what others write waits a moment for it:
    /// whoever names it may have seen it at another server.
    async fn has_had(&self, venue: &Venue, version: Version) -> Result<bool, EngineError>;

    /// Events in the order of creation, after the one with this id.
    async fn events(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Page<(Arc<Venue>, EventSummary)>, EngineError>;

    /// How an event's seats and pools stand, or what changed.
    async fn availability(&self, venue: &Venue, since: Since) -> Result<Availability, EngineError>;

    /// An event's changes from a version on, as they come.
    async fn subscribe(&self, venue: &Venue, since: Since) -> Result<Subscription, EngineError>;

    /// A hold, for whoever has its secret.
    async fn hold(&self, hold: HoldId, secret: Option<HoldSecret>) -> Result<Done, EngineError>;

    /// An event's live holds after this place, each with its place, for the operator.
    ///
    /// Places begin at 1. A hold keeps its place, so one that lives while all pages are read is in exactly one of them.
    async fn holds(&self, venue: &Venue, after: u64, limit: usize) -> Result<Page<(u64, Hold)>, EngineError>;

    /// An event's payments that must be given back, by hold, after this place, each with its place; see [`Engine::holds`].
    async fn refunds(
        &self,
        venue: &Venue,
        after: u64,
        limit: usize,
    ) -> Result<Page<(u64, RefundsDue)>, EngineError>;

    /// What the operator keeps back from an event's sale, after this place, each with its place; see [`Engine::holds`].
    async fn blocks(
        &self,
        venue: &Venue,
        after: u64,
        limit: usize,
    ) -> Result<Page<(u64, Block)>, EngineError>;

    /// What happened to an event's seats and holds, newest first, for the operator: "why did I lose A-12?".
    ///
    /// An engine goes back as far as it remembers, and says how far that was.
    async fn log(&self, venue: &Venue, query: LogQuery) -> Result<LogPage, EngineError>;

    /// A booking.
    async fn booking(&self, booking: BookingId) -> Result<Done, EngineError>;

    /// What was answered under a key to a request about this hold, for whoever has its secret.
    async fn remembered(
        &self,
        hold: HoldId,
        secret: Option<HoldSecret>,
        key: IdempotencyKey,
    ) -> Result<Option<Done>, EngineError>;

    /// The servers that share the store, this one among them; none when it is this server's own.
    async fn replicas(&self) -> Result<Vec<Replica>, EngineError>;

    /// Whether this is the hold's secret. Takes the same time whether it is or not, and whether there is such a hold.
    fn proves(&self, hold: HoldId, secret: Option<HoldSecret>) -> bool;

    /// The secret of a hold, to be given to whoever created it.
    fn secret_of(&self, hold: HoldId) -> HoldSecret;

    /// A key made of the server's key for something that is not a hold, the same after every start.
    fn key_for(&self, purpose: &str) -> SecretKey;

    /// The same, but no two processes have it at the same time: only where one process at a time has the server's key is it
    /// the same after every start.
    fn key_of_process(&self, purpose: &str) -> SecretKey;

    /// The server's time.
    fn now(&self) -> Timestamp;

    /// Whether it takes commands.
    fn is_ready(&self) -> bool;

    /// How long ago events, availability and streams were last known to show everything that is durable.
    ///
    /// None while they do, give or take a second; an engine whose store is its own never says anything else.
    fn behind(&self) -> Option<Duration>;

    /// What it counts.
    fn meters(&self) -> &Meters;

    /// Writes a consistent copy to a new file while work goes on.
    async fn backup(&self, to: &Path) -> Result<(), EngineError>;

    /// Finishes what was accepted, refuses what comes later, and lets go of the store.
    async fn close(&self);
}

/// A command with what goes with it.
#[derive(Debug)]
pub struct Request {
    /// What to do.
    pub command: Command,
    /// Proof of holding, for the commands that need it.
    pub secret: Option<HoldSecret>,
    /// Makes the command repeatable.
    pub key: Option<IdempotencyKey>,
}

/// Names a request, so that a repetition of it is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// A hash of caller, route and key.
    pub scope: u128,
    /// A hash of everything the request asks for.
    pub fingerprint: u128,
}

/// What a command came to, durably.
#[derive(Debug, Clone)]
pub struct Done {
    /// The outcome.
    pub outcome: Outcome,
    /// The event it is about.
    pub venue: Arc<Venue>,
    /// When it was decided.
    pub at: Timestamp,
    /// Whether this answer was given before.
    pub replayed: bool,
}

/// What a command came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The event as it then stood.
    Event(EventSummary),
    /// The hold as it then stood.
    Hold(Hold),
    /// The booking as it then stood.
    Booking(Booking),
    /// The block.
    Block(Block),
    /// The block is gone.
    BlockGone,
    /// The payment must be given back; that was noted.
    RefundDue(Reference),
}

/// Why there is no outcome, by what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The rules say no. Nothing changed, and the same request may be tried again.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// The first request with this idempotency key is still being worked on. Ask again.
    #[error("the first request with this idempotency key is not finished")]
    InFlight,
    /// The idempotency key belongs to another request. Use a new one.
    #[error("the idempotency key was used for another request")]
    KeyMismatch,
    /// Too much to do. Nothing changed; come back later.
    #[error("too much to do")]
    Overloaded,
    /// It may have taken effect, or not. Ask again under the same idempotency key.
    #[error("no answer from the store; the command may have taken effect")]
    Unknown,
    /// The store cannot be reached. Nothing changed; come back later.
    #[error("the store cannot be reached")]
    Unavailable,
    /// The store is closed or broken. Nothing changed.
    #[error("the store is closed")]
    Closed,
    /// A backup could not be written.
    #[error("the backup could not be written: {0}")]
    Backup(String),
}

/// The bits of a new hold's id that are those of its key, if it has one: most of what is random in a UUID of version 7. So whoever
/// could find two keys that agree in all of them could make one id twice in a millisecond. Hashing keys with a secret keeps
/// them from it, and the second such hold is refused.
const KEY_IN_ID: u128 = (1 << 62) - 1;

impl Request {
    /// A command without proof or key.
    pub fn new(command: Command) -> Self {
        Self { command, secret: None, key: None }
    }

    /// The same with a hold's secret.
    pub fn with_secret(mut self, secret: Option<HoldSecret>) -> Self {
        self.secret = secret;
        self
    }

    /// The same, repeatable. A new hold's id then ends like the key: who has a seat tells who repeats a request for it.
    pub fn with_key(mut self, key: Option<IdempotencyKey>) -> Self {
        if let (Command::CreateHold(create), Some(key)) = (&mut self.command, &key) {
            let id = create.id.as_raw() & !KEY_IN_ID | key.scope & KEY_IN_ID;
            create.id = HoldId::from_raw(id).unwrap_or(create.id);
        }
        self.key = key;
        self
    }

    /// The hold whose secret must be shown.
    pub fn needs_secret_of(&self) -> Option<HoldId> {
        match &self.command {
            Command::AmendHold(amend) => Some(amend.hold),
            Command::ReleaseHold(hold) | Command::PaymentFailed(hold, _) => Some(*hold),
            Command::BeginPayment(begin) => Some(begin.hold),
            Command::ConfirmHold(confirm) => Some(confirm.hold),
            Command::CreateEvent(_)
            | Command::UpdateEvent(_)
            | Command::CreateHold(_)
            | Command::RevokeHold(..)
            | Command::CancelBooking(_)
            | Command::CreateBlock(_)
            | Command::RemoveBlock(..) => None,
        }
    }
}
