//! Answers from the log: the changes that the feed remembers, with the holds and bookings they are about.

use std::collections::BTreeSet;
use std::sync::Arc;

use leasehold_core::{EventNo, HoldId, Owner, Reference, SeatNo, State};

use super::EmbeddedEngine;
use super::hall::Hall;
use crate::feed::Feed;
use crate::{About, Change, EngineError, LogPage, LogQuery, SeatOwner};

/// Changes that are looked through at a time, and holds that the writer looks up while commands wait.
const CHANGES_PER_PIECE: usize = 2_048;

impl EmbeddedEngine {
    pub(super) async fn look_back(&self, hall: &Hall, query: LogQuery) -> Result<LogPage, EngineError> {
        let mut page = LogPage::default();
        let mut before = query.before;
        let had_it = match query.about {
            About::Seat(seat) => holds_that_had(&hall.feed, seat),
            _ => BTreeSet::new(),
        };
        // Ends with the log, which is bounded.
        loop {
            let piece = hall.feed.before(before, CHANGES_PER_PIECE);
            let Some(oldest) = piece.last().map(|change| change.version.number) else {
                page.more = false;
                break;
            };
            let wanted = self.wanted(&query.about, &piece).await?;
            for change in piece {
                page.looked_back_to = Some(change.version.number);
                let is_told_by_hold = change.hold.is_some_and(|hold| had_it.contains(&hold));
                if is_told_by_hold || wanted.has(&change) {
                    page.entries.push(change);
                    if page.entries.len() == query.limit {
                        break;
                    }
                }
            }
            page.more = true;
            before = Some(oldest);
            if page.entries.len() == query.limit {
                break;
            }
        }
        self.describe(hall.venue.number, &query.about, page).await
    }

    /// Which of these changes are wanted. Whose a hold is, only the writer knows.
    async fn wanted(&self, about: &About, piece: &[Arc<Change>]) -> Result<Wanted, EngineError> {
        let belongs: fn(&State, HoldId, &Reference) -> bool = match about {
            About::Everything | About::Seat(_) | About::Hold(_) => return Ok(Wanted::About(about.clone())),
            About::Holder(_) => |state, hold, holder| {
                state.hold(hold).is_some_and(|hold| hold.holder.as_ref() == Some(holder))
            },
            About::Order(_) => is_of_order,
        };
        let (About::Holder(reference) | About::Order(reference)) = about else {
            unreachable!("the others are answered above")
        };
        let reference = reference.clone();
        let holds: BTreeSet<HoldId> = piece.iter().filter_map(|change| change.hold).collect();
        let read = self.read(move |reading| {
            let state = reading.state;
            holds.into_iter().filter(|hold| belongs(state, *hold, &reference)).collect::<BTreeSet<_>>()
        });
        Ok(Wanted::Holds(read.await?))
    }

    /// Adds how the things stand that the entries are about.
    async fn describe(
        &self,
        event: EventNo,
        about: &About,
        mut page: LogPage,
    ) -> Result<LogPage, EngineError> {
        let mut holds: BTreeSet<HoldId> = page.entries.iter().filter_map(|change| change.hold).collect();
        let seat = if let About::Seat(seat) = about { Some(*seat) } else { None };
        let read = self.read(move |reading| {
            let state = reading.state;
            let owner = seat.zip(state.event(event)).map(|(seat, event)| event.seat(seat).owner);
            page.owner = match owner {
                Some(Owner::Hold(slot)) => state.hold_at(slot).map(|hold| SeatOwner::Hold(hold.id)),
                Some(Owner::Booking(slot)) => {
                    state.booking_at(slot).map(|booking| SeatOwner::Booking(booking.id))
                }
                Some(Owner::Block(slot)) => {
                    page.blocks = state.block_at(slot).cloned().into_iter().collect();
                    page.blocks.first().map(|block| SeatOwner::Block(block.id))
                }
                Some(Owner::Free) | None => None,
            };
            // Whoever has the seat may have got it before the log begins.
            holds.extend(match page.owner {
                Some(SeatOwner::Hold(hold)) => Some(hold),
                Some(SeatOwner::Booking(booking)) => state.booking(booking).map(|booking| booking.hold),
                Some(SeatOwner::Block(_)) | None => None,
            });
            page.holds = holds.iter().filter_map(|hold| state.hold(*hold).cloned()).collect();
            let bookings = page.holds.iter().filter_map(|hold| hold.booking);
            page.bookings = bookings.filter_map(|booking| state.booking(booking).cloned()).collect();
            page
        });
        read.await
    }
}

/// Every hold that had the seat, as far as is remembered. What happened to it belongs to the seat's story, also where the
/// seat stayed as it was: a payment that began, or came too late.
fn holds_that_had(feed: &Feed, seat: SeatNo) -> BTreeSet<HoldId> {
    let mut holds = BTreeSet::new();
    let mut before = None;
    // Ends with the log, which is bounded.
    loop {
        let piece = feed.before(before, CHANGES_PER_PIECE);
        let Some(oldest) = piece.last() else { return holds };
        before = Some(oldest.version.number);
        let had = piece.iter().filter(|change| change.seats.iter().any(|update| update.seat == seat));
        holds.extend(had.filter_map(|change| change.hold));
    }
}

/// Which changes of a piece are wanted.
enum Wanted {
    About(About),
    Holds(BTreeSet<HoldId>),
}

impl Wanted {
    fn has(&self, change: &Change) -> bool {
        match self {
            Wanted::About(About::Seat(seat)) => change.seats.iter().any(|update| update.seat == *seat),
            Wanted::About(About::Hold(hold)) => change.hold == Some(*hold),
            Wanted::About(About::Everything | About::Holder(_) | About::Order(_)) => true,
            Wanted::Holds(holds) => change.hold.is_some_and(|hold| holds.contains(&hold)),
        }
    }
}

fn is_of_order(state: &State, hold: HoldId, reference: &Reference) -> bool {
    let Some(hold) = state.hold(hold) else { return false };
    let paid = hold.payment.as_ref().is_some_and(|payment| payment.reference == *reference);
    let booking = hold.booking.and_then(|booking| state.booking(booking));
    let ordered = booking.is_some_and(|booking| {
        [&booking.order_ref, &booking.payment_ref].iter().any(|known| known.as_ref() == Some(reference))
    });
    paid || ordered
}
