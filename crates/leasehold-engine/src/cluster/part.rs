//! One event's part of a batch: what was loaded of it, what the rules made of it, what is to be written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::{
    BlockId, BlockSlot, BookingId, BookingSlot, Changes, Command, Entry, Epoch, Event, EventNo, Fence,
    HoldId, HoldSlot, Kind, Owner, Pool, PoolCounts, PoolNo, Reference, Refusal, Reply, SeatNo, State,
    Timestamp, Touched,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::rows::{
    AnswerRow, BlockRow, BookingRow, EventRow, HERE, HoldRow, HolderRow, LogRow, PaymentRow, PoolRow,
    RulesRow, SeatRow, millis, status_number, time,
};
use super::wants::{block_id, booking_id, hold_id};
use crate::bytes::Damaged;
use crate::{EventSummary, Meters, Outcome, Venue};

/// What `load_v1` gives.
#[derive(Debug, Deserialize)]
pub(crate) struct Loaded {
    /// The ledger's clock. None when no event was found.
    pub(crate) now: Option<i64>,
    pub(crate) events: Option<Vec<EventRow>>,
    pools: Option<Vec<PoolRow>>,
    pub(crate) holds: Option<Vec<HoldRow>>,
    payments: Option<Vec<PaymentRow>>,
    pub(crate) bookings: Option<Vec<BookingRow>>,
    blocks: Option<Vec<BlockRow>>,
    /// Event, seat, fence, status.
    seats: Option<Vec<(i32, u32, u64, i64)>>,
    holders: Option<Vec<HolderRow>>,
    pub(crate) answers: Option<Vec<AnswerRow>>,
    /// Event and payments in progress, where a command wants to begin one; see `sql/paying.sql`.
    #[serde(skip)]
    pub(crate) paying: Vec<(i32, i64)>,
}

/// What `write_v3` takes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Images {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    forgotten: Vec<Uuid>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) holds: Vec<HoldRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) seats: Vec<SeatRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pools: Vec<PoolRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) bookings: Vec<BookingRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blocks_gone: Vec<Uuid>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) blocks: Vec<BlockRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) payments: Vec<PaymentRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    holders: Vec<HolderRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) answers: Vec<AnswerRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) log: Vec<LogRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) events: Vec<EventRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) recount: Vec<i32>,
}

/// One event of a batch.
pub(crate) struct Part {
    pub(crate) venue: Arc<Venue>,
    row: EventRow,
    state: State,
    now: Timestamp,
    changes: Changes,
    /// The ids of the holds that were loaded, by slot.
    loaded_holds: Vec<HoldId>,
    /// The ids of the blocks that were loaded or made, by slot: a block that is gone has none any more.
    block_ids: BTreeMap<BlockSlot, BlockId>,
    /// The units of every holder concerned, before.
    units_before: BTreeMap<Reference, u64>,
    touched: TouchedThings,
    log: Vec<LogRow>,
}

/// Everything that changed, each once: what is written is how it stands at the end.
#[derive(Default)]
struct TouchedThings {
    seats: BTreeSet<SeatNo>,
    pools: BTreeSet<PoolNo>,
    holds: BTreeSet<HoldSlot>,
    bookings: BTreeSet<BookingSlot>,
    blocks: BTreeSet<BlockSlot>,
    blocks_gone: Vec<Uuid>,
    payments: BTreeSet<Reference>,
    forgotten: Vec<Uuid>,
    rules: bool,
}

impl Images {
    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        // Whatever changes, changes an event, but for a hold that is forgotten and an answer about what did not change.
        self.events.is_empty() && self.forgotten.is_empty() && self.answers.is_empty()
    }

    /// Counts what was written.
    pub(crate) fn count(&self, meters: &Meters) {
        self.log.iter().filter_map(|row| kind_of(row.kind).ok()).for_each(|kind| meters.count(kind));
    }
}

impl Loaded {
    /// Takes one event's part out of what was loaded.
    pub(crate) fn part(&mut self, venue: Arc<Venue>, epoch: Epoch) -> Result<Option<Part>, Damaged> {
        let no = venue.number.0.cast_signed();
        let found = self.events.iter().flatten().find(|row| row.no == no);
        let (Some(row), Some(now)) = (found.cloned(), self.now) else { return Ok(None) };
        // No entry is earlier than the one before it, even if the clock was set back.
        let now = time(now.max(row.last_at));
        let mut event = empty_event(&venue, &row)?;
        for pool in self.pools.iter().flatten().filter(|pool| pool.event_no == no) {
            event.load_part_pool(PoolNo(pool.pool_no.cast_unsigned()), pool.counts()?);
        }
        for &(_, seat, fence, status) in self.seats.iter().flatten().filter(|seat| seat.0 == no) {
            if seat >= venue.layout.seat_count() {
                return Err(Damaged);
            }
            event.load_part_seat(SeatNo(seat), Fence(fence), status == 0);
        }
        let mut units_before = BTreeMap::new();
        for holder in self.holders.iter().flatten().filter(|holder| holder.event_no == no) {
            let name = Reference::parse(&holder.holder).map_err(|_| Damaged)?;
            event.load_part_units(&name, holder.units.unsigned_abs());
            units_before.insert(name, holder.units.unsigned_abs());
        }
        for &(_, paying) in self.paying.iter().filter(|(of, _)| *of == no) {
            event.load_part_payments(u32::try_from(paying).map_err(|_| Damaged)?);
        }
        let mut state = State::part(epoch, event);
        let mut loaded_holds = Vec::new();
        for hold in take(&mut self.holds, |hold| hold.event_no == no) {
            let slot = HoldSlot(loaded_holds.len() as u32);
            let hold = hold.hold(HERE)?;
            loaded_holds.push(hold.id);
            state.load_hold(slot, hold);
        }
        for (slot, booking) in take(&mut self.bookings, |row| row.event_no == no).enumerate() {
            state.load_booking(BookingSlot(slot as u32), booking.booking(HERE)?);
        }
        let mut block_ids = BTreeMap::new();
        for (slot, block) in take(&mut self.blocks, |row| row.event_no == no).enumerate() {
            let (slot, block) = (BlockSlot(slot as u32), block.block(HERE)?);
            block_ids.insert(slot, block.id);
            state.load_block(slot, block);
        }
        for payment in take(&mut self.payments, |row| row.event_no == no) {
            state.load_payment(payment.payment(HERE)?);
        }
        state.finish_loading_part();
        Ok(Some(Part {
            venue,
            row,
            state,
            now,
            changes: Changes::default(),
            loaded_holds,
            block_ids,
            units_before,
            touched: TouchedThings::default(),
            log: Vec::new(),
        }))
    }
}

/// The event with everything free, and the counts of the whole.
pub(crate) fn empty_event(venue: &Venue, row: &EventRow) -> Result<Event, Damaged> {
    let pool = |id: &leasehold_core::Name| Pool { id: id.clone(), capacity: 0, held: 0, sold: 0, blocked: 0 };
    let pools = venue.pools.iter().map(pool).collect();
    let policy = row.rules.policy()?;
    let (id, name, layout) = (venue.id.clone(), venue.name.clone(), Arc::clone(&venue.layout));
    let mut event = Event::new(HERE, id, name, layout, pools, policy, venue.created_at);
    event.load_rules(policy, row.rules.state(), row.version.unsigned_abs());
    event.load_part_counts(row.counts()?);
    Ok(event)
}

fn take<T>(rows: &mut Option<Vec<T>>, wanted: impl Fn(&T) -> bool) -> impl Iterator<Item = T> {
    let (taken, left) = rows.take().unwrap_or_default().into_iter().partition(wanted);
    *rows = Some(left);
    let taken: Vec<T> = taken;
    taken.into_iter()
}

impl Part {
    /// Ends what is over and forgets what is old, as every engine does before it takes commands.
    pub(crate) fn tidy(&mut self) {
        self.state.expire_due(self.now, usize::MAX, &mut self.changes);
        self.record();
        self.state.forget_ended(self.now, usize::MAX, &mut self.changes);
        self.record();
    }

    /// How many of the loaded holds are over and not yet ended.
    pub(crate) fn due(&self) -> usize {
        self.state.holds().filter(|(_, hold)| hold.keeps_items() && !hold.is_live(self.now)).count()
    }

    /// Whether this hold is of this event. It may have been forgotten a moment ago.
    pub(crate) fn had_hold(&self, hold: HoldId) -> bool {
        self.loaded_holds.contains(&hold) || self.state.hold(hold).is_some()
    }

    /// Whether this booking is of this event.
    pub(crate) fn has_booking(&self, booking: BookingId) -> bool {
        self.state.booking(booking).is_some()
    }

    /// The hold with this id, if it was loaded.
    pub(crate) fn outcome_of_hold(&self, hold: HoldId) -> Option<Outcome> {
        self.state.hold(hold).map(|hold| self.outcome(Reply::Hold(hold.clone())))
    }

    /// Carries out a command about this event.
    pub(crate) fn execute(&mut self, command: Command) -> Result<Outcome, Refusal> {
        let result = self.state.apply(here(command), self.now, &mut self.changes);
        self.record();
        result.map(|reply| self.outcome(reply))
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    pub(crate) fn number(&self) -> EventNo {
        self.venue.number
    }

    /// The event's version after everything.
    pub(crate) fn version(&self) -> u64 {
        self.state.seq()
    }

    /// In the words of the whole, where the event has another number.
    fn outcome(&self, reply: Reply) -> Outcome {
        let event = self.venue.number;
        match reply {
            Reply::Event(_) => {
                let known = self.state.event(HERE).expect("a part has an event");
                Outcome::Event(EventSummary::of(known, self.state.epoch()))
            }
            Reply::Hold(hold) => Outcome::Hold(leasehold_core::Hold { event, ..hold }),
            Reply::Booking(booking) => Outcome::Booking(leasehold_core::Booking { event, ..booking }),
            Reply::Block(block) => Outcome::Block(leasehold_core::Block { event, ..block }),
            Reply::BlockGone(_) => Outcome::BlockGone,
            Reply::RefundDue(_, reference) => Outcome::RefundDue(reference),
        }
    }

    /// Notes what was just changed.
    fn record(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        for entry in &changes.entries {
            for thing in changes.touched_by(entry) {
                self.touch(thing, entry.kind);
            }
            self.log_entry(entry, changes.touched_by(entry));
        }
        for thing in &changes.forgotten {
            if let Touched::Hold(slot) = thing
                && let Some(id) = self.loaded_holds.get(slot.0 as usize)
            {
                self.touched.forgotten.push(hold_id(*id));
            }
        }
        self.changes = changes;
        self.changes.clear();
    }

    fn touch(&mut self, thing: &Touched, kind: Kind) {
        match thing {
            Touched::Event(_) => self.touched.rules |= kind != Kind::EventCreated,
            Touched::Seat(_, seat, ..) => drop(self.touched.seats.insert(*seat)),
            Touched::Pool(_, pool, _) => drop(self.touched.pools.insert(*pool)),
            Touched::Hold(slot) => drop(self.touched.holds.insert(*slot)),
            Touched::Booking(slot) => drop(self.touched.bookings.insert(*slot)),
            Touched::Block(slot) => {
                let block = self.state.block_at(*slot).expect("it was just touched");
                self.block_ids.insert(*slot, block.id);
                self.touched.blocks.insert(*slot);
            }
            Touched::BlockGone(slot) => {
                self.touched.blocks.remove(slot);
                self.touched.blocks_gone.extend(self.block_ids.get(slot).map(|id| block_id(*id)));
            }
            Touched::Payment(_, reference) => {
                self.touched.payments.insert(reference.clone());
                // Whether a hold is forgotten some day depends on its payments.
                let payment = self.state.payment(HERE, reference).expect("it was just touched");
                self.touched.holds.extend(self.state.hold_slot(payment.hold));
            }
            Touched::Reason(_) => {}
        }
    }

    fn log_entry(&mut self, entry: &Entry, touched: &[Touched]) {
        let (mut seats, mut pools, mut subject, mut rules) = (Vec::new(), Vec::new(), None, None);
        let mut reason = None;
        for thing in touched {
            match thing {
                Touched::Seat(_, seat, _, status) => {
                    seats.extend([seat.0.cast_signed(), i32::from(status_number(*status))]);
                }
                Touched::Pool(_, pool, counts) => {
                    let PoolCounts { capacity, held, sold, blocked } = **counts;
                    pools.extend([pool.0, capacity, held, sold, blocked].map(u32::cast_signed));
                }
                Touched::Hold(slot) => {
                    subject = subject.or(self.state.hold_at(*slot).map(|hold| hold_id(hold.id)));
                }
                Touched::Booking(slot) => {
                    subject = self.state.booking_at(*slot).map(|booking| hold_id(booking.hold));
                }
                Touched::Block(slot) | Touched::BlockGone(slot) => {
                    subject = self.block_ids.get(slot).map(|id| block_id(*id));
                    if matches!(thing, Touched::Block(_)) {
                        let block = self.state.block_at(*slot);
                        reason = block
                            .and_then(|block| block.reason.as_ref())
                            .map(|text| text.as_str().to_owned());
                    }
                }
                Touched::Reason(text) => reason = Some(text.as_str().to_owned()),
                Touched::Event(_) => {
                    let event = self.state.event(HERE).expect("a part has an event");
                    rules = Some(RulesRow::new(&event.policy, event.state));
                }
                Touched::Payment(_, reference) => {
                    let payment = self.state.payment(HERE, reference).expect("it was just touched");
                    subject = subject.or(Some(hold_id(payment.hold)));
                }
            }
        }
        self.log.push(LogRow {
            event_no: self.row.no,
            version: entry.version.cast_signed(),
            at: millis(entry.at),
            kind: kind_number(entry.kind),
            seats: (!seats.is_empty()).then_some(seats),
            pools: (!pools.is_empty()).then_some(pools),
            rules,
            subject,
            reason,
        });
    }

    /// Adds what is to be written.
    pub(crate) fn write(mut self, images: &mut Images) {
        let event = self.state.event(HERE).expect("a part has an event");
        let no = self.row.no;
        let changed = !self.log.is_empty();
        images.seats.extend(self.touched.seats.iter().map(|&seat| {
            let known = event.seat(seat);
            SeatRow {
                event_no: no,
                seat_no: seat.0.cast_signed(),
                fence: known.fence.0.cast_signed(),
                status: status_number(known.owner.status()),
                owner: owner_id(&self.state, known.owner),
            }
        }));
        images.pools.extend(
            self.touched
                .pools
                .iter()
                .map(|&pool| PoolRow::new(no, pool, &PoolCounts::of(&event.pools()[pool.0 as usize]))),
        );
        let holds = self.touched.holds.iter().filter_map(|slot| self.state.hold_at(*slot));
        images.holds.extend(holds.map(|hold| HoldRow::new(no, hold, retention(&self.state, hold))));
        let bookings = self.touched.bookings.iter().filter_map(|slot| self.state.booking_at(*slot));
        images.bookings.extend(bookings.map(|booking| BookingRow::new(no, booking)));
        let blocks = self.touched.blocks.iter().filter_map(|slot| self.state.block_at(*slot));
        images.blocks.extend(blocks.map(|block| BlockRow::new(no, block)));
        images.blocks_gone.append(&mut self.touched.blocks_gone);
        let payments = self.touched.payments.iter().filter_map(|one| self.state.payment(HERE, one));
        images.payments.extend(payments.map(|payment| PaymentRow::new(no, payment)));
        images.forgotten.append(&mut self.touched.forgotten);
        let limit_before = self.row.rules.policy().map_or(0, |policy| policy.units_per_holder_max);
        match (limit_before > 0) == (event.policy.units_per_holder_max > 0) {
            true => images.holders.extend(self.changed_units()),
            false => images.recount.push(no),
        }
        if changed {
            let mut row = self.row.clone();
            row.version = event.version.cast_signed();
            row.last_at = millis(self.now);
            if self.touched.rules {
                row.rules = RulesRow::new(&event.policy, event.state);
                row.rules_version = row.version;
            }
            row.set_counts(event.counts());
            images.events.push(row);
        }
        images.log.append(&mut self.log);
    }

    fn changed_units(&self) -> Vec<HolderRow> {
        let event = self.state.event(HERE).expect("a part has an event");
        let mut concerned: BTreeSet<&Reference> = self.units_before.keys().collect();
        concerned.extend(self.state.holds().filter_map(|(_, hold)| hold.holder.as_ref()));
        concerned.extend(self.state.bookings().filter_map(|(_, booking)| booking.holder.as_ref()));
        let changed = concerned.into_iter().filter_map(|holder| {
            let units = event.units_of(holder)?;
            let before = self.units_before.get(holder).copied().unwrap_or(0);
            let row = || HolderRow {
                event_no: self.row.no,
                holder: holder.as_str().to_owned(),
                units: units.cast_signed(),
            };
            (units != before).then(row)
        });
        changed.collect()
    }
}

/// The id of a seat's owner.
pub(crate) fn owner_id(state: &State, owner: Owner) -> Option<Uuid> {
    let here = "the owner of a seat is known";
    match owner {
        Owner::Free => None,
        Owner::Hold(slot) => Some(hold_id(state.hold_at(slot).expect(here).id)),
        Owner::Booking(slot) => Some(booking_id(state.booking_at(slot).expect(here).id)),
        Owner::Block(slot) => Some(block_id(state.block_at(slot).expect(here).id)),
    }
}

/// Why a hold that ended is forgotten some day, or nothing if it lives or has to do with money.
pub(crate) fn retention(state: &State, hold: &leasehold_core::Hold) -> Option<u8> {
    let void = |payment: &leasehold_core::Payment| payment.state == leasehold_core::PaymentState::Void;
    let kept = hold.keeps_items() || hold.booking.is_some() || !state.payments_of(hold).all(void);
    (!kept).then(|| u8::from(state.payments_of(hold).next().is_some()))
}

/// The same command, about the only event of a part.
fn here(mut command: Command) -> Command {
    match &mut command {
        Command::UpdateEvent(update) => update.event = HERE,
        Command::CreateHold(create) => create.event = HERE,
        Command::CreateBlock(create) => create.event = HERE,
        Command::RemoveBlock(event, _) => *event = HERE,
        Command::CreateEvent(_)
        | Command::AmendHold(_)
        | Command::ReleaseHold(_)
        | Command::RevokeHold(..)
        | Command::BeginPayment(_)
        | Command::PaymentFailed(..)
        | Command::ConfirmHold(_)
        | Command::CancelBooking(_) => {}
    }
    command
}

pub(crate) fn kind_number(kind: Kind) -> i16 {
    let place = Kind::ALL.iter().position(|known| *known == kind).expect("every kind is listed");
    place as i16
}

pub(crate) fn kind_of(number: i16) -> Result<Kind, Damaged> {
    usize::try_from(number).ok().and_then(|place| Kind::ALL.get(place)).copied().ok_or(Damaged)
}
