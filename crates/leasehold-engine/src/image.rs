//! After-images: what a thing looked like after a change, as bytes. Versioned, because files outlive programs.

use std::sync::Arc;

use leasehold_core::{
    AtPaymentDeadline, Block, BlockId, Booking, BookingId, BookingState, Epoch, Event, EventNo, EventState,
    Fence, Hold, HoldId, HoldState, Item, Layout, Millis, Name, Payment, PaymentPhase, PaymentState, Policy,
    Pool, PoolCounts, PoolNo, Reference, SeatNo, StatusCounts, Text, Timestamp,
};

use crate::bytes::{Damaged, Get, Put};
use crate::{EventSummary, Version};

/// The first byte of every image and entry. A reader refuses what it does not know.
pub(crate) const FORMAT: u8 = 1;

/// Of a policy: holds whose payment is late are kept.
const KEEP: u8 = 1;
/// Of a policy: the most payments in progress at a time follow. Earlier versions knew no such limit.
const PAYMENTS_LIMITED: u8 = 2;

pub(crate) fn put_hold(out: &mut Vec<u8>, hold: &Hold) {
    out.put_u128(hold.id.as_raw());
    out.put_u64(hold.number);
    out.put_u64(hold.event.0.into());
    out.put_u8(hold_state(hold.state));
    out.put_u64(hold.version.into());
    out.put_u64(hold.extends.into());
    put_items(out, &hold.items);
    put_reference(out, hold.holder.as_ref());
    out.put_u64(hold.created_at.as_millis());
    for time in [hold.expires_at, hold.hard_deadline, hold.life_end, hold.ended_at] {
        put_later(out, hold.created_at, time);
    }
    match &hold.payment {
        None => out.put_u8(0),
        Some(payment) => {
            out.put_u8(1);
            out.put_text(payment.reference.as_str());
            put_later(out, hold.created_at, payment.deadline);
            out.put_u64(payment.remaining.0);
            out.put_u8(payment.kept.into());
        }
    }
    out.put_u128(hold.booking.map_or(0, BookingId::as_raw));
}

pub(crate) fn get_hold(get: &mut Get<'_>) -> Result<Hold, Damaged> {
    let id = HoldId::from_raw(get.u128()?).ok_or(Damaged)?;
    let number = get.u64()?;
    let event = EventNo(get.u32()?);
    let state = read_hold_state(get.u8()?)?;
    let (version, extends) = (get.u32()?, get.u32()?);
    let items = get_items(get)?;
    let holder = get_reference(get)?;
    let created_at = Timestamp::from_millis(get.u64()?);
    let mut later = || get_later(get, created_at);
    let (expires_at, hard_deadline, life_end, ended_at) = (later()?, later()?, later()?, later()?);
    let payment = match get.u8()? {
        0 => None,
        _ => Some(Box::new(PaymentPhase {
            reference: Reference::parse(get.text()?).map_err(|_| Damaged)?,
            deadline: get_later(get, created_at)?,
            remaining: Millis(get.u64()?),
            kept: get.u8()? != 0,
        })),
    };
    let booking = BookingId::from_raw(get.u128()?);
    Ok(Hold {
        id,
        number,
        event,
        state,
        version,
        extends,
        items,
        holder,
        created_at,
        expires_at,
        hard_deadline,
        life_end,
        ended_at,
        payment,
        booking,
    })
}

pub(crate) fn put_booking(out: &mut Vec<u8>, booking: &Booking) {
    out.put_u128(booking.id.as_raw());
    out.put_u64(booking.number);
    out.put_u64(booking.event.0.into());
    out.put_u128(booking.hold.as_raw());
    out.put_u8(u8::from(booking.state == BookingState::Cancelled));
    put_items(out, &booking.items);
    for reference in [&booking.holder, &booking.payment_ref, &booking.order_ref] {
        put_reference(out, reference.as_ref());
    }
    out.put_u8(booking.revived.into());
    out.put_u64(booking.booked_at.as_millis());
    put_later(out, booking.booked_at, booking.cancelled_at);
}

pub(crate) fn get_booking(get: &mut Get<'_>) -> Result<Booking, Damaged> {
    let id = BookingId::from_raw(get.u128()?).ok_or(Damaged)?;
    let (number, event) = (get.u64()?, EventNo(get.u32()?));
    let hold = HoldId::from_raw(get.u128()?).ok_or(Damaged)?;
    let state = if get.u8()? == 0 { BookingState::Booked } else { BookingState::Cancelled };
    let items = get_items(get)?;
    let (holder, payment_ref, order_ref) = (get_reference(get)?, get_reference(get)?, get_reference(get)?);
    let revived = get.u8()? != 0;
    let booked_at = Timestamp::from_millis(get.u64()?);
    let cancelled_at = get_later(get, booked_at)?;
    Ok(Booking {
        id,
        number,
        event,
        hold,
        state,
        items,
        holder,
        payment_ref,
        order_ref,
        revived,
        booked_at,
        cancelled_at,
    })
}

pub(crate) fn put_block(out: &mut Vec<u8>, block: &Block) {
    out.put_u128(block.id.as_raw());
    out.put_u64(block.number);
    out.put_u64(block.event.0.into());
    put_items(out, &block.items);
    out.put_text(block.reason.as_ref().map_or("", Text::as_str));
    out.put_u64(block.created_at.as_millis());
}

pub(crate) fn get_block(get: &mut Get<'_>) -> Result<Block, Damaged> {
    Ok(Block {
        id: BlockId::from_raw(get.u128()?).ok_or(Damaged)?,
        number: get.u64()?,
        event: EventNo(get.u32()?),
        items: get_items(get)?,
        reason: match get.text()? {
            "" => None,
            text => Some(Text::parse(text).map_err(|_| Damaged)?),
        },
        created_at: Timestamp::from_millis(get.u64()?),
    })
}

pub(crate) fn put_payment(out: &mut Vec<u8>, payment: &Payment) {
    out.put_u64(payment.number);
    out.put_u64(payment.event.0.into());
    out.put_text(payment.reference.as_str());
    out.put_u128(payment.hold.as_raw());
    out.put_u8(match payment.state {
        PaymentState::Pending => 0,
        PaymentState::Booked => 1,
        PaymentState::RefundDue => 2,
        PaymentState::Void => 3,
    });
}

pub(crate) fn get_payment(get: &mut Get<'_>) -> Result<Payment, Damaged> {
    Ok(Payment {
        number: get.u64()?,
        event: EventNo(get.u32()?),
        reference: Reference::parse(get.text()?).map_err(|_| Damaged)?,
        hold: HoldId::from_raw(get.u128()?).ok_or(Damaged)?,
        state: match get.u8()? {
            0 => PaymentState::Pending,
            1 => PaymentState::Booked,
            2 => PaymentState::RefundDue,
            3 => PaymentState::Void,
            _ => return Err(Damaged),
        },
    })
}

/// The event with its layout; seats and counters are not part of it.
pub(crate) fn put_event(out: &mut Vec<u8>, event: &Event) {
    out.put_u64(event.number.0.into());
    out.put_text(event.id.as_str());
    out.put_text(event.name.as_str());
    out.put_u64(event.created_at.as_millis());
    put_rules(out, event);
    out.put_u64(event.pools().len() as u64);
    for pool in event.pools() {
        out.put_text(pool.id.as_str());
        out.put_u64(pool.capacity.into());
    }
    out.put_u64(event.layout.seat_count().into());
    for section in event.layout.sections() {
        for row in &event.layout.rows()[section.rows.start as usize..section.rows.end as usize] {
            out.put_u64((row.seats.end - row.seats.start).into());
            out.put_text(&section.name);
            out.put_text(&row.name);
            for seat in row.seats.clone() {
                out.put_text(event.layout.seat_name(SeatNo(seat)));
            }
        }
    }
}

pub(crate) fn get_event(get: &mut Get<'_>) -> Result<Event, Damaged> {
    let number = EventNo(get.u32()?);
    let id = Name::parse(get.text()?).map_err(|_| Damaged)?;
    let name = Text::parse(get.text()?).map_err(|_| Damaged)?;
    let created_at = Timestamp::from_millis(get.u64()?);
    let rules = get_rules(get)?;
    let pools = (0..get.u32()?).map(|_| {
        let id = Name::parse(get.text()?).map_err(|_| Damaged)?;
        Ok(Pool { id, capacity: get.u32()?, held: 0, sold: 0, blocked: 0 })
    });
    let pools = pools.collect::<Result<Vec<_>, Damaged>>()?;
    let layout = get_layout(get)?;
    let mut event = Event::new(number, id, name, Arc::new(layout), pools, rules.policy, created_at);
    event.load_rules(rules.policy, rules.state, rules.version);
    Ok(event)
}

/// Reads the seats row by row, without a list of them in between: there may be a million.
fn get_layout(get: &mut Get<'_>) -> Result<Layout, Damaged> {
    let seat_count = get.u32()?;
    let (mut left_in_row, mut section, mut row) = (0, "", "");
    let mut damaged = false;
    let seats = (0..seat_count).map_while(|_| {
        let mut next = || {
            if left_in_row == 0 {
                left_in_row = get.u32()?;
                (section, row) = (get.text()?, get.text()?);
            }
            left_in_row = left_in_row.checked_sub(1).ok_or(Damaged)?;
            Ok::<_, Damaged>((get.text()?, section, row))
        };
        let seat = next();
        damaged |= seat.is_err();
        seat.ok()
    });
    let layout = Layout::from_seats(seats).map_err(|_| Damaged)?;
    if damaged { Err(Damaged) } else { Ok(layout) }
}

/// What of an event itself can change.
pub(crate) struct Rules {
    pub(crate) policy: Policy,
    pub(crate) state: EventState,
    pub(crate) version: u64,
}

pub(crate) fn put_rules(out: &mut Vec<u8>, event: &Event) {
    out.put_u8(u8::from(event.state == EventState::Closed));
    out.put_u64(event.version);
    put_policy(out, &event.policy);
}

pub(crate) fn get_rules(get: &mut Get<'_>) -> Result<Rules, Damaged> {
    let state = if get.u8()? == 0 { EventState::Open } else { EventState::Closed };
    Ok(Rules { state, version: get.u64()?, policy: get_policy(get)? })
}

pub(crate) fn put_summary(out: &mut Vec<u8>, summary: &EventSummary) {
    out.put_u8(u8::from(summary.state == EventState::Closed));
    out.put_u64(summary.version.epoch.0.into());
    out.put_u64(summary.version.number);
    let counts = summary.counts;
    for count in [counts.free, counts.held, counts.sold, counts.blocked] {
        out.put_u64(count.into());
    }
    put_policy(out, &summary.policy);
    out.put_u64(summary.pools.len() as u64);
    for pool in &summary.pools {
        put_pool_counts(out, pool);
    }
}

pub(crate) fn get_summary(get: &mut Get<'_>) -> Result<EventSummary, Damaged> {
    let state = if get.u8()? == 0 { EventState::Open } else { EventState::Closed };
    let version = Version { epoch: Epoch(get.u32()?), number: get.u64()? };
    let counts = StatusCounts { free: get.u32()?, held: get.u32()?, sold: get.u32()?, blocked: get.u32()? };
    let policy = get_policy(get)?;
    let pools = (0..get.u32()?).map(|_| get_pool_counts(get)).collect::<Result<_, _>>()?;
    Ok(EventSummary { state, version, counts, pools, policy })
}

pub(crate) fn put_pool_counts(out: &mut Vec<u8>, pool: &PoolCounts) {
    for count in [pool.capacity, pool.held, pool.sold, pool.blocked] {
        out.put_u64(count.into());
    }
}

pub(crate) fn get_pool_counts(get: &mut Get<'_>) -> Result<PoolCounts, Damaged> {
    Ok(PoolCounts { capacity: get.u32()?, held: get.u32()?, sold: get.u32()?, blocked: get.u32()? })
}

fn put_policy(out: &mut Vec<u8>, policy: &Policy) {
    out.put_u64(policy.hold_ttl.0);
    out.put_u64(policy.hold_total_max.0);
    out.put_u64(policy.extends_max.into());
    out.put_u64(policy.payment_max.0);
    out.put_u64(policy.units_per_holder_max.into());
    out.put_u8(policy.accept_late_payment.into());
    let mut flags = u8::from(policy.at_payment_deadline == AtPaymentDeadline::Keep) * KEEP;
    if policy.payments_in_flight_max > 0 {
        flags |= PAYMENTS_LIMITED;
    }
    out.put_u8(flags);
    if policy.payments_in_flight_max > 0 {
        out.put_u64(policy.payments_in_flight_max.into());
    }
}

fn get_policy(get: &mut Get<'_>) -> Result<Policy, Damaged> {
    let mut policy = Policy {
        hold_ttl: Millis(get.u64()?),
        hold_total_max: Millis(get.u64()?),
        extends_max: get.u32()?,
        payment_max: Millis(get.u64()?),
        units_per_holder_max: get.u32()?,
        payments_in_flight_max: 0,
        accept_late_payment: get.u8()? != 0,
        at_payment_deadline: AtPaymentDeadline::Expire,
    };
    let flags = get.u8()?;
    if flags & !(KEEP | PAYMENTS_LIMITED) != 0 {
        return Err(Damaged);
    }
    if flags & KEEP != 0 {
        policy.at_payment_deadline = AtPaymentDeadline::Keep;
    }
    if flags & PAYMENTS_LIMITED != 0 {
        policy.payments_in_flight_max = get.u32()?;
    }
    Ok(policy)
}

fn put_items(out: &mut Vec<u8>, items: &[Item]) {
    out.put_u64(items.len() as u64);
    for item in items {
        match *item {
            Item::Seat { seat, fence } => {
                out.put_u8(0);
                out.put_u64(seat.0.into());
                out.put_u64(fence.0);
            }
            Item::Pool { pool, quantity } => {
                out.put_u8(1);
                out.put_u64(pool.0.into());
                out.put_u64(quantity.into());
            }
        }
    }
}

fn get_items(get: &mut Get<'_>) -> Result<Box<[Item]>, Damaged> {
    (0..get.u32()?)
        .map(|_| match get.u8()? {
            0 => Ok(Item::Seat { seat: SeatNo(get.u32()?), fence: Fence(get.u64()?) }),
            1 => Ok(Item::Pool { pool: PoolNo(get.u32()?), quantity: get.u32()? }),
            _ => Err(Damaged),
        })
        .collect()
}

fn put_reference(out: &mut Vec<u8>, reference: Option<&Reference>) {
    out.put_text(reference.map_or("", Reference::as_str));
}

fn get_reference(get: &mut Get<'_>) -> Result<Option<Reference>, Damaged> {
    match get.text()? {
        "" => Ok(None),
        text => Reference::parse(text).map(Some).map_err(|_| Damaged),
    }
}

/// A time at or after another: its distance, or 0 for never.
fn put_later(out: &mut Vec<u8>, base: Timestamp, time: Timestamp) {
    out.put_u64(if time == Timestamp::NEVER { 0 } else { time.since(base).0 + 1 });
}

fn get_later(get: &mut Get<'_>, base: Timestamp) -> Result<Timestamp, Damaged> {
    Ok(match get.u64()? {
        0 => Timestamp::NEVER,
        distance => base.after(Millis(distance - 1)),
    })
}

pub(crate) fn hold_state(state: HoldState) -> u8 {
    match state {
        HoldState::Held => 0,
        HoldState::Confirming => 1,
        HoldState::Confirmed => 2,
        HoldState::Released => 3,
        HoldState::Expired => 4,
        HoldState::Revoked => 5,
    }
}

pub(crate) fn read_hold_state(byte: u8) -> Result<HoldState, Damaged> {
    Ok(match byte {
        0 => HoldState::Held,
        1 => HoldState::Confirming,
        2 => HoldState::Confirmed,
        3 => HoldState::Released,
        4 => HoldState::Expired,
        5 => HoldState::Revoked,
        _ => return Err(Damaged),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_of_an_earlier_version_is_read_and_one_of_a_later_version_is_not() {
        // 300 s, 1800 s, 100 times, 900 s, 4 units, late payments are taken, holds are kept.
        let numbers = [300_000, 1_800_000, 100, 900_000, 4];
        let mut bytes = Vec::new();
        numbers.into_iter().for_each(|number| bytes.put_u64(number));
        bytes.extend([1, 1]);
        let known = Policy {
            units_per_holder_max: 4,
            at_payment_deadline: AtPaymentDeadline::Keep,
            ..Policy::default()
        };
        assert_eq!(get_policy(&mut Get(&bytes)), Ok(known));
        *bytes.last_mut().unwrap() = 4;
        assert_eq!(get_policy(&mut Get(&bytes)), Err(Damaged));
    }

    #[test]
    fn a_policy_is_read_as_it_was_written() {
        for payments_in_flight_max in [0, 1, u32::MAX] {
            for at_payment_deadline in [AtPaymentDeadline::Expire, AtPaymentDeadline::Keep] {
                let policy = Policy { payments_in_flight_max, at_payment_deadline, ..Policy::default() };
                let mut bytes = Vec::new();
                put_policy(&mut bytes, &policy);
                let mut get = Get(&bytes);
                assert_eq!((get_policy(&mut get), get.is_empty()), (Ok(policy), true));
            }
        }
    }
}
