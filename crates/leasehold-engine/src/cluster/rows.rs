//! Rows of the ledger as they travel, and the things of the rules they stand for.

use leasehold_core::{
    AtPaymentDeadline, Block, BlockId, Booking, BookingId, BookingState, EventNo, EventState, Fence, Hold,
    HoldId, HoldState, Item, Millis, Payment, PaymentPhase, PaymentState, Policy, PoolCounts, PoolNo,
    Reference, SeatNo, SeatStatus, StatusCounts, Text, Timestamp,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::bytes::Damaged;
use crate::image;

/// The number of the only event in a part of a state.
pub(crate) const HERE: EventNo = EventNo(0);

/// `leasehold.events`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EventRow {
    pub(crate) no: i32,
    pub(crate) id: String,
    pub(crate) last_at: i64,
    pub(crate) created_at: i64,
    pub(crate) rules_version: i64,
    pub(crate) version: i64,
    #[serde(flatten)]
    pub(crate) rules: RulesRow,
    pub(crate) seats_free: i32,
    pub(crate) seats_held: i32,
    pub(crate) seats_sold: i32,
    pub(crate) seats_blocked: i32,
}

/// The rules of an event, in its row and in the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RulesRow {
    pub(crate) closed: bool,
    hold_ttl: i64,
    hold_total_max: i64,
    extends_max: i64,
    payment_max: i64,
    units_per_holder_max: i64,
    /// Absent in entries of the log that earlier versions wrote.
    #[serde(default)]
    payments_in_flight_max: i64,
    accept_late_payment: bool,
    keep_at_deadline: bool,
}

/// `leasehold.pools`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct PoolRow {
    pub(crate) event_no: i32,
    pub(crate) pool_no: i32,
    capacity: i32,
    held: i32,
    sold: i32,
    blocked: i32,
}

/// `leasehold.holds`, without the place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HoldRow {
    pub(crate) id: Uuid,
    pub(crate) event_no: i32,
    number: i64,
    state: u8,
    version: u32,
    extends: u32,
    items: Vec<i64>,
    holder: Option<String>,
    created_at: i64,
    expires_at: i64,
    hard_deadline: i64,
    life_end: i64,
    ended_at: Option<i64>,
    payment_ref: Option<String>,
    payment_deadline: Option<i64>,
    payment_remaining: Option<i64>,
    payment_kept: Option<bool>,
    booking: Option<Uuid>,
    live_until: Option<i64>,
    kept_until: Option<i64>,
    retention: Option<u8>,
}

/// `leasehold.bookings`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BookingRow {
    pub(crate) id: Uuid,
    pub(crate) event_no: i32,
    number: i64,
    hold: Uuid,
    cancelled: bool,
    items: Vec<i64>,
    holder: Option<String>,
    payment_ref: Option<String>,
    order_ref: Option<String>,
    revived: bool,
    booked_at: i64,
    cancelled_at: Option<i64>,
}

/// `leasehold.blocks`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BlockRow {
    pub(crate) id: Uuid,
    pub(crate) event_no: i32,
    number: i64,
    items: Vec<i64>,
    reason: Option<String>,
    created_at: i64,
}

/// `leasehold.payments`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PaymentRow {
    pub(crate) event_no: i32,
    reference: String,
    hold: Uuid,
    number: i64,
    state: u8,
}

/// `leasehold.seats`.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct SeatRow {
    pub(crate) event_no: i32,
    pub(crate) seat_no: i32,
    pub(crate) fence: i64,
    pub(crate) status: u8,
    pub(crate) owner: Option<Uuid>,
}

/// `leasehold.holders`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HolderRow {
    pub(crate) event_no: i32,
    pub(crate) holder: String,
    pub(crate) units: i64,
}

/// `leasehold.log`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LogRow {
    pub(crate) event_no: i32,
    pub(crate) version: i64,
    pub(crate) at: i64,
    pub(crate) kind: i16,
    pub(crate) seats: Option<Vec<i32>>,
    pub(crate) pools: Option<Vec<i32>>,
    pub(crate) rules: Option<RulesRow>,
    pub(crate) subject: Option<Uuid>,
    pub(crate) reason: Option<String>,
}

/// `leasehold.answers`; the bytes in hexadecimal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AnswerRow {
    pub(crate) scope: Uuid,
    pub(crate) fingerprint: Uuid,
    pub(crate) event_no: i32,
    pub(crate) at: i64,
    pub(crate) answer: String,
    #[serde(default, skip_serializing)]
    pub(crate) number: Option<i64>,
    #[serde(default, skip_serializing)]
    pub(crate) fences: Option<Vec<i64>>,
    /// In place of the bytes.
    #[serde(default, skip_serializing)]
    pub(crate) booking: Option<BookingRow>,
}

/// A time as the ledger has it. None of ours is beyond its range, but for "never", which is no value.
pub(crate) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn millis_unless_never(time: Timestamp) -> Option<i64> {
    (time != Timestamp::NEVER).then(|| millis(time))
}

pub(crate) fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis.unsigned_abs())
}

fn time_or_never(millis: Option<i64>) -> Timestamp {
    millis.map_or(Timestamp::NEVER, time)
}

/// A number that the ledger keeps in a wider type than the rules.
fn narrow<T, U: TryFrom<T>>(number: T) -> Result<U, Damaged> {
    U::try_from(number).map_err(|_| Damaged)
}

fn reference(text: Option<String>) -> Result<Option<Reference>, Damaged> {
    text.map(|text| Reference::parse(&text).map_err(|_| Damaged)).transpose()
}

fn as_text(reference: Option<&Reference>) -> Option<String> {
    reference.map(|reference| reference.as_str().to_owned())
}

pub(crate) fn items_row(items: &[Item]) -> Vec<i64> {
    let numbers = items.iter().flat_map(|item| match *item {
        Item::Seat { seat, fence } => [0, i64::from(seat.0), fence.0.cast_signed()],
        Item::Pool { pool, quantity } => [1, i64::from(pool.0), i64::from(quantity)],
    });
    numbers.collect()
}

pub(crate) fn items_of(row: &[i64]) -> Result<Box<[Item]>, Damaged> {
    let items = row.chunks(3).map(|numbers| match *numbers {
        [0, seat, fence] => Ok(Item::Seat { seat: SeatNo(narrow(seat)?), fence: Fence(narrow(fence)?) }),
        [1, pool, quantity] => Ok(Item::Pool { pool: PoolNo(narrow(pool)?), quantity: narrow(quantity)? }),
        _ => Err(Damaged),
    });
    items.collect()
}

pub(crate) fn status_number(status: SeatStatus) -> u8 {
    match status {
        SeatStatus::Free => 0,
        SeatStatus::Held => 1,
        SeatStatus::Sold => 2,
        SeatStatus::Blocked => 3,
    }
}

pub(crate) fn status_of(number: i64) -> Result<SeatStatus, Damaged> {
    Ok(match number {
        0 => SeatStatus::Free,
        1 => SeatStatus::Held,
        2 => SeatStatus::Sold,
        3 => SeatStatus::Blocked,
        _ => return Err(Damaged),
    })
}

impl EventRow {
    pub(crate) fn counts(&self) -> Result<StatusCounts, Damaged> {
        Ok(StatusCounts {
            free: narrow(self.seats_free)?,
            held: narrow(self.seats_held)?,
            sold: narrow(self.seats_sold)?,
            blocked: narrow(self.seats_blocked)?,
        })
    }

    pub(crate) fn set_counts(&mut self, counts: StatusCounts) {
        self.seats_free = counts.free.cast_signed();
        self.seats_held = counts.held.cast_signed();
        self.seats_sold = counts.sold.cast_signed();
        self.seats_blocked = counts.blocked.cast_signed();
    }
}

impl RulesRow {
    pub(crate) fn new(policy: &Policy, state: EventState) -> Self {
        let span = |span: Millis| i64::try_from(span.0).unwrap_or(i64::MAX);
        Self {
            closed: state == EventState::Closed,
            hold_ttl: span(policy.hold_ttl),
            hold_total_max: span(policy.hold_total_max),
            extends_max: policy.extends_max.into(),
            payment_max: span(policy.payment_max),
            units_per_holder_max: policy.units_per_holder_max.into(),
            payments_in_flight_max: policy.payments_in_flight_max.into(),
            accept_late_payment: policy.accept_late_payment,
            keep_at_deadline: policy.at_payment_deadline == AtPaymentDeadline::Keep,
        }
    }

    pub(crate) fn state(&self) -> EventState {
        if self.closed { EventState::Closed } else { EventState::Open }
    }

    pub(crate) fn policy(&self) -> Result<Policy, Damaged> {
        Ok(Policy {
            hold_ttl: Millis(narrow(self.hold_ttl)?),
            hold_total_max: Millis(narrow(self.hold_total_max)?),
            extends_max: narrow(self.extends_max)?,
            payment_max: Millis(narrow(self.payment_max)?),
            units_per_holder_max: narrow(self.units_per_holder_max)?,
            payments_in_flight_max: narrow(self.payments_in_flight_max)?,
            accept_late_payment: self.accept_late_payment,
            at_payment_deadline: match self.keep_at_deadline {
                true => AtPaymentDeadline::Keep,
                false => AtPaymentDeadline::Expire,
            },
        })
    }
}

impl PoolRow {
    pub(crate) fn new(event_no: i32, pool: PoolNo, counts: &PoolCounts) -> Self {
        Self {
            event_no,
            pool_no: pool.0.cast_signed(),
            capacity: counts.capacity.cast_signed(),
            held: counts.held.cast_signed(),
            sold: counts.sold.cast_signed(),
            blocked: counts.blocked.cast_signed(),
        }
    }

    pub(crate) fn counts(&self) -> Result<PoolCounts, Damaged> {
        Ok(PoolCounts {
            capacity: narrow(self.capacity)?,
            held: narrow(self.held)?,
            sold: narrow(self.sold)?,
            blocked: narrow(self.blocked)?,
        })
    }
}

impl HoldRow {
    /// The row of a hold; `retention` as in the table.
    pub(crate) fn new(event_no: i32, hold: &Hold, retention: Option<u8>) -> Self {
        let payment = hold.payment.as_deref();
        Self {
            id: Uuid::from_u128(hold.id.as_raw()),
            event_no,
            number: hold.number.cast_signed(),
            state: image::hold_state(hold.state),
            version: hold.version,
            extends: hold.extends,
            items: items_row(&hold.items),
            holder: as_text(hold.holder.as_ref()),
            created_at: millis(hold.created_at),
            expires_at: millis(hold.expires_at),
            hard_deadline: millis(hold.hard_deadline),
            life_end: millis(hold.life_end),
            ended_at: millis_unless_never(hold.ended_at),
            payment_ref: as_text(payment.map(|payment| &payment.reference)),
            payment_deadline: payment.map(|payment| millis(payment.deadline)),
            payment_remaining: payment.map(|payment| i64::try_from(payment.remaining.0).unwrap_or(i64::MAX)),
            payment_kept: payment.map(|payment| payment.kept),
            booking: hold.booking.map(|booking| Uuid::from_u128(booking.as_raw())),
            live_until: hold.keeps_items().then(|| hold.live_until()).and_then(millis_unless_never),
            kept_until: hold.kept_until().map(millis),
            retention,
        }
    }

    /// The hold, as one of this event.
    pub(crate) fn hold(self, event: EventNo) -> Result<Hold, Damaged> {
        let payment = match (self.payment_deadline, self.payment_remaining, self.payment_kept) {
            (Some(deadline), Some(remaining), Some(kept)) => Some(Box::new(PaymentPhase {
                reference: reference(self.payment_ref)?.ok_or(Damaged)?,
                deadline: time(deadline),
                remaining: Millis(narrow(remaining)?),
                kept,
            })),
            _ => None,
        };
        Ok(Hold {
            id: HoldId::from_raw(self.id.as_u128()).ok_or(Damaged)?,
            number: narrow(self.number)?,
            event,
            state: image::read_hold_state(self.state)?,
            version: self.version,
            extends: self.extends,
            items: items_of(&self.items)?,
            holder: reference(self.holder)?,
            created_at: time(self.created_at),
            expires_at: time(self.expires_at),
            hard_deadline: time(self.hard_deadline),
            life_end: time(self.life_end),
            ended_at: time_or_never(self.ended_at),
            payment,
            booking: self.booking.and_then(|booking| BookingId::from_raw(booking.as_u128())),
        })
    }

    /// The hold as it is at this time: one that has run out is over, also when nobody has noted it yet.
    pub(crate) fn hold_at(self, event: EventNo, now: Timestamp) -> Result<Hold, Damaged> {
        let mut hold = self.hold(event)?;
        if hold.keeps_items() && !hold.is_live(now) {
            hold.ended_at = hold.live_until();
            hold.state = HoldState::Expired;
            hold.version += 1;
        }
        Ok(hold)
    }
}

impl BookingRow {
    pub(crate) fn new(event_no: i32, booking: &Booking) -> Self {
        Self {
            id: Uuid::from_u128(booking.id.as_raw()),
            event_no,
            number: booking.number.cast_signed(),
            hold: Uuid::from_u128(booking.hold.as_raw()),
            cancelled: booking.state == BookingState::Cancelled,
            items: items_row(&booking.items),
            holder: as_text(booking.holder.as_ref()),
            payment_ref: as_text(booking.payment_ref.as_ref()),
            order_ref: as_text(booking.order_ref.as_ref()),
            revived: booking.revived,
            booked_at: millis(booking.booked_at),
            cancelled_at: millis_unless_never(booking.cancelled_at),
        }
    }

    /// The booking as it was when it was made.
    pub(crate) fn as_made(&self, event: EventNo) -> Result<Booking, Damaged> {
        Self { cancelled: false, cancelled_at: None, ..self.clone() }.booking(event)
    }

    pub(crate) fn booking(self, event: EventNo) -> Result<Booking, Damaged> {
        Ok(Booking {
            id: BookingId::from_raw(self.id.as_u128()).ok_or(Damaged)?,
            number: narrow(self.number)?,
            event,
            hold: HoldId::from_raw(self.hold.as_u128()).ok_or(Damaged)?,
            state: if self.cancelled { BookingState::Cancelled } else { BookingState::Booked },
            items: items_of(&self.items)?,
            holder: reference(self.holder)?,
            payment_ref: reference(self.payment_ref)?,
            order_ref: reference(self.order_ref)?,
            revived: self.revived,
            booked_at: time(self.booked_at),
            cancelled_at: time_or_never(self.cancelled_at),
        })
    }
}

impl BlockRow {
    pub(crate) fn new(event_no: i32, block: &Block) -> Self {
        Self {
            id: Uuid::from_u128(block.id.as_raw()),
            event_no,
            number: block.number.cast_signed(),
            items: items_row(&block.items),
            reason: block.reason.as_ref().map(|reason| reason.as_str().to_owned()),
            created_at: millis(block.created_at),
        }
    }

    pub(crate) fn block(self, event: EventNo) -> Result<Block, Damaged> {
        Ok(Block {
            id: BlockId::from_raw(self.id.as_u128()).ok_or(Damaged)?,
            number: narrow(self.number)?,
            event,
            items: items_of(&self.items)?,
            reason: self.reason.map(|text| Text::parse(&text).map_err(|_| Damaged)).transpose()?,
            created_at: time(self.created_at),
        })
    }
}

impl PaymentRow {
    pub(crate) fn new(event_no: i32, payment: &Payment) -> Self {
        Self {
            event_no,
            reference: payment.reference.as_str().to_owned(),
            hold: Uuid::from_u128(payment.hold.as_raw()),
            number: payment.number.cast_signed(),
            state: match payment.state {
                PaymentState::Pending => 0,
                PaymentState::Booked => 1,
                PaymentState::RefundDue => 2,
                PaymentState::Void => 3,
            },
        }
    }

    pub(crate) fn payment(self, event: EventNo) -> Result<Payment, Damaged> {
        Ok(Payment {
            number: narrow(self.number)?,
            event,
            reference: Reference::parse(&self.reference).map_err(|_| Damaged)?,
            hold: HoldId::from_raw(self.hold.as_u128()).ok_or(Damaged)?,
            state: match self.state {
                0 => PaymentState::Pending,
                1 => PaymentState::Booked,
                2 => PaymentState::RefundDue,
                3 => PaymentState::Void,
                _ => return Err(Damaged),
            },
        })
    }
}
