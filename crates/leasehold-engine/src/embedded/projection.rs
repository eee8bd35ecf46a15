//! The projection: tables that follow the journal, written behind it in key order, a few rows a commit.
//!
//! It works in passes. A pass begins with everything marked so far and ends when all of that is written;
//! what changes meanwhile is marked for the next pass. When a pass is over, every change before its
//! beginning is in the tables, so the journal up to there is no longer needed for a restart. A thing
//! that changes often is written once a pass, as it stands then.

use std::time::{Duration, Instant};

use leasehold_core::{
    BlockSlot, BookingSlot, BookingState, EventNo, EventState, HoldSlot, PaymentState, Reference, SeatNo,
    SeatStatus, State, Touched,
};
use rusqlite::Connection;

use super::store::set_meta;
use crate::bytes::Put;
use crate::image;

/// Passes begin at least this far apart, so that what changes often is written once.
const PASS_INTERVAL: Duration = Duration::from_millis(500);
/// Rows written with a commit of commands. What changes often is marked again before its turn comes, so this keeps up.
const ROWS_PER_COMMAND: usize = 1;
const ROWS_PER_COMMIT_MIN: usize = 32;
/// Rows written with a commit of their own, when nobody waits.
const ROWS_WHEN_IDLE: usize = 1_024;
/// From here on the projection works harder, so that the journal stays short.
const BACKLOG_LARGE: u64 = 1_000_000;

/// What the tables do not show yet, and how far this pass has come.
#[derive(Debug, Default)]
pub(crate) struct Projection {
    /// Marked since the pass began.
    marked: Marked,
    /// Still to be written in this pass.
    pass: Option<Pass>,
    last_begin: Option<Instant>,
    /// Events whose fixed part is in the tables; they are written in order.
    venues: u32,
    image: Vec<u8>,
}

#[derive(Debug)]
struct Pass {
    left: Marked,
    /// The last entry before the pass began.
    floor: u64,
    /// Events there were when it began.
    venues: u32,
}

#[derive(Debug, Default)]
struct Marked {
    any: bool,
    events: Vec<Option<Box<MarkedEvent>>>,
    holds: Marks,
    bookings: Marks,
    blocks: Marks,
    payments: Vec<(EventNo, Reference)>,
}

#[derive(Debug, Default)]
struct MarkedEvent {
    created: bool,
    rules: bool,
    seats: Marks,
    pools: Marks,
}

/// A set of small numbers, taken out in order.
#[derive(Debug, Default)]
struct Marks {
    words: Vec<u64>,
    cursor: usize,
}

impl Projection {
    /// A projection onto tables that show the fixed part of so many events.
    pub(crate) fn onto(venues: u32) -> Self {
        Self { venues, ..Self::default() }
    }

    /// Notes that the tables do not show this yet.
    pub(crate) fn mark(&mut self, touched: &Touched, state: &State) {
        self.marked.mark(touched, state, self.venues);
    }

    /// Notes that an event's version changed.
    pub(crate) fn mark_version(&mut self, event: EventNo) {
        self.marked.event(event).rules = true;
        self.marked.any = true;
    }

    /// When there is next something to write; none when there is nothing.
    pub(crate) fn next_work(&self, now: Instant) -> Option<Instant> {
        match (&self.pass, self.last_begin) {
            (Some(_), _) => Some(now),
            (None, _) if !self.marked.any => None,
            (None, Some(begun)) => Some(begun + PASS_INTERVAL),
            (None, None) => Some(now),
        }
    }

    /// Writes a few rows in the open transaction; with a new floor when that completed a pass.
    pub(crate) fn step(
        &mut self,
        connection: &Connection,
        state: &State,
        commands: usize,
        backlog: u64,
    ) -> rusqlite::Result<Stepped> {
        let now = Instant::now();
        let due = self.next_work(now).is_some_and(|at| at <= now);
        if self.pass.is_none() && due {
            self.last_begin = Some(now);
            let venues = state.events().len() as u32;
            self.pass = Some(Pass { left: std::mem::take(&mut self.marked), floor: state.seq(), venues });
        }
        let Some(pass) = &mut self.pass else { return Ok(Stepped::default()) };
        let harder = 1 + usize::try_from(backlog / BACKLOG_LARGE).unwrap_or(8).min(8);
        let budget = match commands {
            0 => ROWS_WHEN_IDLE,
            commands => commands * ROWS_PER_COMMAND * harder + ROWS_PER_COMMIT_MIN,
        };
        let rows = pass.left.write(connection, state, budget, &mut self.image)?;
        let mut floor = None;
        if rows < budget {
            self.venues = self.venues.max(pass.venues);
            floor = Some(pass.floor);
            set_meta(connection, "floor", &pass.floor.to_le_bytes())?;
            self.pass = None;
        }
        Ok(Stepped { rows, floor })
    }
}

/// What a step did.
#[derive(Debug, Default)]
pub(crate) struct Stepped {
    pub(crate) rows: usize,
    /// Everything up to here is in the tables.
    pub(crate) floor: Option<u64>,
}

impl Marked {
    fn event(&mut self, event: EventNo) -> &mut MarkedEvent {
        let place = event.0 as usize;
        if place >= self.events.len() {
            self.events.resize_with(place + 1, || None);
        }
        self.events[place].get_or_insert_default()
    }

    fn mark(&mut self, touched: &Touched, state: &State, venues: u32) {
        self.any = true;
        match touched {
            Touched::Event(event) => {
                let known = state.event(*event).expect("what was touched is there");
                let marked = self.event(*event);
                marked.rules = true;
                if event.0 >= venues {
                    marked.created = true;
                    marked.seats.set_all(known.layout.seat_count());
                    marked.pools.set_all(known.pools().len() as u32);
                }
            }
            Touched::Seat(event, seat, ..) => self.event(*event).seats.set(seat.0),
            Touched::Pool(event, pool, _) => self.event(*event).pools.set(pool.0),
            Touched::Hold(slot) => self.holds.set(slot.0),
            Touched::Booking(slot) => self.bookings.set(slot.0),
            Touched::Block(slot) | Touched::BlockGone(slot) => self.blocks.set(slot.0),
            Touched::Payment(event, reference) => self.payments.push((*event, reference.clone())),
            Touched::Reason(_) => {}
        }
    }

    /// Writes up to `budget` rows; fewer means that nothing is left.
    fn write(
        &mut self,
        connection: &Connection,
        state: &State,
        budget: usize,
        image: &mut Vec<u8>,
    ) -> rusqlite::Result<usize> {
        let mut rows = 0;
        for (place, marked) in self.events.iter_mut().enumerate() {
            let Some(event) = marked else { continue };
            rows += event.write(connection, state, EventNo(place as u32), budget - rows, image)?;
            if rows == budget {
                return Ok(rows);
            }
            *marked = None;
        }
        rows += write_holds(connection, state, &mut self.holds, budget - rows, image)?;
        while rows < budget {
            if let Some(slot) = self.bookings.pop() {
                write_booking(connection, state, BookingSlot(slot), image)?;
            } else if let Some(slot) = self.blocks.pop() {
                write_block(connection, state, BlockSlot(slot), image)?;
            } else if let Some((event, reference)) = self.payments.pop() {
                write_payment(connection, state, event, &reference, image)?;
            } else {
                break;
            }
            rows += 1;
        }
        Ok(rows)
    }
}

impl MarkedEvent {
    fn write(
        &mut self,
        connection: &Connection,
        state: &State,
        number: EventNo,
        budget: usize,
        image: &mut Vec<u8>,
    ) -> rusqlite::Result<usize> {
        let event = state.event(number).expect("marked events are there");
        let mut rows = 0;
        if budget == 0 {
            return Ok(0);
        }
        if std::mem::take(&mut self.created) {
            begin_image(image);
            image::put_event(image, event);
            let sql = "INSERT OR REPLACE INTO venues (event_no, image) VALUES (?1, ?2)";
            connection.prepare_cached(sql)?.execute((number.0, &*image))?;
            rows += 1;
        }
        if rows < budget && std::mem::take(&mut self.rules) {
            begin_image(image);
            image::put_rules(image, event);
            // Not "or replace", which would make room for a second event of the same id.
            let sql = "INSERT INTO events (event_no, id, name, state, version, rules)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                       ON CONFLICT (event_no) DO UPDATE SET
                       id = excluded.id, name = excluded.name, state = excluded.state,
                       version = excluded.version, rules = excluded.rules";
            let (id, name) = (event.id.as_str(), event.name.as_str());
            let row = (number.0, id, name, event_state(event.state), event.version, &*image);
            connection.prepare_cached(sql)?.execute(row)?;
            rows += 1;
        }
        let sql = "INSERT OR REPLACE INTO seats (key, event_no, seat_no, seat, state, fence)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let mut statement = connection.prepare_cached(sql)?;
        while rows < budget
            && let Some(place) = self.seats.pop()
        {
            let seat = event.seat(SeatNo(place));
            let name = event.layout.seat_name(SeatNo(place));
            let fence = i64::try_from(seat.fence.0).unwrap_or(i64::MAX);
            let key = i64::from(number.0) << 32 | i64::from(place);
            statement.execute((key, number.0, place, name, seat_state(seat.owner.status()), fence))?;
            rows += 1;
        }
        let sql = "INSERT OR REPLACE INTO pools (event_no, pool_no, pool, capacity, held, sold, blocked)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let mut statement = connection.prepare_cached(sql)?;
        while rows < budget
            && let Some(place) = self.pools.pop()
        {
            let pool = &event.pools()[place as usize];
            let counts = (pool.capacity, pool.held, pool.sold, pool.blocked);
            let row = (number.0, place, pool.id.as_str(), counts.0, counts.1, counts.2, counts.3);
            statement.execute(row)?;
            rows += 1;
        }
        Ok(rows)
    }
}

/// Writes up to `budget` of the marked holds. There are so many of them that statements are looked up once.
fn write_holds(
    connection: &Connection,
    state: &State,
    holds: &mut Marks,
    budget: usize,
    image: &mut Vec<u8>,
) -> rusqlite::Result<usize> {
    let sql = "INSERT OR REPLACE INTO holds (slot, id, event_no, state, holder, expires_at, image)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let mut write = connection.prepare_cached(sql)?;
    let mut delete = connection.prepare_cached("DELETE FROM holds WHERE slot = ?1")?;
    let mut rows = 0;
    while rows < budget
        && let Some(slot) = holds.pop()
    {
        rows += 1;
        let Some(hold) = state.hold_at(HoldSlot(slot)) else {
            delete.execute([slot])?;
            continue;
        };
        begin_image(image);
        image::put_hold(image, hold);
        let holder = hold.holder.as_ref().map(Reference::as_str);
        let (id, expires_at) = (hold.id.to_string(), hold.expires_at.as_millis());
        write.execute((slot, id, hold.event.0, hold.state.as_str(), holder, expires_at, &*image))?;
    }
    Ok(rows)
}

fn write_booking(
    connection: &Connection,
    state: &State,
    slot: BookingSlot,
    image: &mut Vec<u8>,
) -> rusqlite::Result<()> {
    let booking = state.booking_at(slot).expect("bookings are never forgotten");
    begin_image(image);
    image::put_booking(image, booking);
    let sql =
        "INSERT OR REPLACE INTO bookings (slot, id, event_no, state, holder, payment_ref, order_ref, image)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let booked = booking_state(booking.state);
    let [holder, payment, order] = [&booking.holder, &booking.payment_ref, &booking.order_ref]
        .map(|reference| reference.as_ref().map(Reference::as_str));
    let row = (slot.0, booking.id.to_string(), booking.event.0, booked, holder, payment, order, &*image);
    connection.prepare_cached(sql)?.execute(row).map(drop)
}

fn write_block(
    connection: &Connection,
    state: &State,
    slot: BlockSlot,
    image: &mut Vec<u8>,
) -> rusqlite::Result<()> {
    let Some(block) = state.block_at(slot) else {
        return connection.prepare_cached("DELETE FROM blocks WHERE slot = ?1")?.execute([slot.0]).map(drop);
    };
    begin_image(image);
    image::put_block(image, block);
    let sql = "INSERT OR REPLACE INTO blocks (slot, id, event_no, image) VALUES (?1, ?2, ?3, ?4)";
    connection.prepare_cached(sql)?.execute((slot.0, block.id.to_string(), block.event.0, &*image)).map(drop)
}

fn write_payment(
    connection: &Connection,
    state: &State,
    event: EventNo,
    reference: &Reference,
    image: &mut Vec<u8>,
) -> rusqlite::Result<()> {
    let Some(payment) = state.payment(event, reference) else {
        let sql = "DELETE FROM payments WHERE event_no = ?1 AND payment_ref = ?2";
        return connection.prepare_cached(sql)?.execute((event.0, reference.as_str())).map(drop);
    };
    begin_image(image);
    image::put_payment(image, payment);
    let name = payment_state(payment.state);
    let sql = "INSERT OR REPLACE INTO payments (event_no, payment_ref, state, image) VALUES (?1, ?2, ?3, ?4)";
    connection.prepare_cached(sql)?.execute((event.0, reference.as_str(), name, &*image)).map(drop)
}

fn begin_image(image: &mut Vec<u8>) {
    image.clear();
    image.put_u8(image::FORMAT);
}

pub(crate) fn seat_state(status: SeatStatus) -> &'static str {
    match status {
        SeatStatus::Free => "free",
        SeatStatus::Held => "held",
        SeatStatus::Sold => "sold",
        SeatStatus::Blocked => "blocked",
    }
}

pub(crate) fn event_state(state: EventState) -> &'static str {
    match state {
        EventState::Open => "open",
        EventState::Closed => "closed",
    }
}

pub(crate) fn booking_state(state: BookingState) -> &'static str {
    match state {
        BookingState::Booked => "booked",
        BookingState::Cancelled => "cancelled",
    }
}

pub(crate) fn payment_state(state: PaymentState) -> &'static str {
    match state {
        PaymentState::Pending => "pending",
        PaymentState::Booked => "booked",
        PaymentState::RefundDue => "refund_due",
        PaymentState::Void => "void",
    }
}

impl Marks {
    fn set(&mut self, number: u32) {
        let place = (number / 64) as usize;
        if place >= self.words.len() {
            self.words.resize(place + 1, 0);
        }
        self.words[place] |= 1 << (number % 64);
        self.cursor = self.cursor.min(place);
    }

    fn set_all(&mut self, count: u32) {
        (0..count).for_each(|number| self.set(number));
    }

    fn pop(&mut self) -> Option<u32> {
        while let Some(word) = self.words.get_mut(self.cursor) {
            if *word != 0 {
                let bit = word.trailing_zeros();
                *word &= *word - 1;
                return Some(self.cursor as u32 * 64 + bit);
            }
            self.cursor += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_out_once_and_in_order() {
        let mut marks = Marks::default();
        for number in [300, 5, 64, 5, 63] {
            marks.set(number);
        }
        let out: Vec<u32> = std::iter::from_fn(|| marks.pop()).collect();
        assert_eq!(out, [5, 63, 64, 300]);
        marks.set(2);
        assert_eq!(marks.pop(), Some(2));
        assert_eq!(marks.pop(), None);
    }
}
