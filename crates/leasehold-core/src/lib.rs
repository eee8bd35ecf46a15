//! The rules of holding and selling, as a state machine.
//!
//! [`State::apply`] takes a [`Command`] and the time, decides, changes the state and says what it
//! changed. There is no I/O here, no clock, no randomness and no async: time and ids come in as
//! arguments, so equal inputs give equal answers. The embedded engine runs this code, the tests
//! use it as the model that every engine is compared with, and [`invariants`] says what must hold
//! after every step.
//!
//! ```
//! use std::sync::Arc;
//! use leasehold_core::*;
//!
//! let mut state = State::new(Epoch::FIRST);
//! let mut changes = Changes::default();
//! let now = Timestamp::from_millis(1_000);
//! let layout = Layout::grid(&[(Name::parse("A").unwrap(), 1, 3)]).unwrap();
//! let created = Command::CreateEvent(CreateEvent {
//!     id: Name::parse("gala").unwrap(),
//!     name: Text::parse("Gala").unwrap(),
//!     layout: Arc::new(layout),
//!     pools: vec![],
//!     policy: Policy::default(),
//! });
//! state.apply(created, now, &mut changes).unwrap();
//! let event = state.event_number(&Name::parse("gala").unwrap()).unwrap();
//!
//! let hold = |id, seat| Command::CreateHold(CreateHold {
//!     event,
//!     id: HoldId::from_raw(id).unwrap(),
//!     items: vec![ItemRequest::Seat(SeatNo(seat))],
//!     holder: None,
//!     ttl: None,
//! });
//! assert!(state.apply(hold(1, 0), now, &mut changes).is_ok());
//! assert!(matches!(state.apply(hold(2, 0), now, &mut changes), Err(Refusal::SeatsTaken(_))));
//! ```

pub mod limits;

mod name;
mod number;
mod time;

mod layout;
mod policy;

mod event;
mod hold;

mod changes;
mod command;
mod payments;
mod state;
mod table;

mod apply;
mod best;
mod part;

pub mod invariants;
#[cfg(feature = "random")]
pub mod random;

pub use best::best_seats;
pub use changes::{Changes, Entry, Kind, Touched};
pub use command::{
    AmendHold, BeginPayment, CancelBooking, Command, ConfirmHold, CreateBlock, CreateEvent, CreateHold,
    EventPatch, ItemRequest, Refusal, Reply, UpdateEvent,
};
pub use event::{Event, EventState, Owner, Pool, PoolCounts, Seat, SeatStatus, StatusCounts};
pub use hold::{
    Block, Booking, BookingState, Hold, HoldEnd, HoldState, Item, Payment, PaymentPhase, PaymentState,
};
pub use layout::{Layout, LayoutError, Row, Section};
pub use name::{BadName, Name, Reference, Text};
pub use number::{
    BlockId, BlockSlot, BookingId, BookingSlot, Epoch, EventNo, Fence, HoldId, HoldSlot, PoolNo, SeatNo,
    SectionNo,
};
pub use policy::{AtPaymentDeadline, BadPolicy, Policy, PolicyPatch};
pub use state::State;
pub use time::{Millis, Timestamp};
