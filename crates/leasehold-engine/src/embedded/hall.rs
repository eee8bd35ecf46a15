//! A hall: what everyone but the writer sees of one event. Its fixed part, its gate, its feed.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use leasehold_core::{Event, Item, State, Touched};

use super::gate::Gate;
use crate::Venue;
use crate::feed::Feed;

/// One event, seen from outside the writer.
#[derive(Debug)]
pub(crate) struct Hall {
    pub(crate) venue: Arc<Venue>,
    pub(crate) gate: Gate,
    pub(crate) feed: Arc<Feed>,
}

impl Hall {
    pub(crate) fn new(event: &Event, state: &State, changes_kept: &Arc<AtomicUsize>) -> Self {
        Self {
            venue: Arc::new(Venue::of(event)),
            gate: Gate::new(event, state),
            feed: Arc::new(Feed::of(event, state.epoch(), Arc::clone(changes_kept))),
        }
    }

    /// Sets the gate to what was applied.
    pub(crate) fn pass_on(&self, touched: &Touched, state: &State) {
        let event = || state.event(self.venue.number).expect("a hall has an event");
        match touched {
            Touched::Seat(_, seat, ..) => {
                self.gate.set_seat(*seat, event().seat(*seat).owner, state);
                self.gate.set_counts(event());
            }
            Touched::Pool(_, pool, _) => self.gate.set_pool(*pool, event()),
            Touched::Event(_) => self.gate.set_closed(event().state),
            // A hold that lives longer or shorter keeps its seats so: they were not touched themselves.
            Touched::Hold(slot) => {
                for item in state.hold_at(*slot).iter().flat_map(|hold| hold.items.iter()) {
                    if let Item::Seat { seat, .. } = item {
                        self.gate.set_seat(*seat, event().seat(*seat).owner, state);
                    }
                }
            }
            Touched::Booking(_)
            | Touched::Block(_)
            | Touched::BlockGone(_)
            | Touched::Payment(..)
            | Touched::Reason(_) => {}
        }
    }
}
