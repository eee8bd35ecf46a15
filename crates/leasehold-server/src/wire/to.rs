//! Answers: from the engine's words to JSON.

use leasehold_api as api;
use leasehold_core::{
    AtPaymentDeadline, Block, Booking, BookingState, EventState, Hold, HoldState, Item, Policy, PoolCounts,
    Reference, SeatStatus, Text, Timestamp,
};
use leasehold_engine::{EventSummary, RefundsDue, Venue};

/// RFC 3339 in UTC, with milliseconds. Every answer has several, so they are written by hand.
pub(crate) fn time(at: Timestamp) -> String {
    const DAY: u64 = 24 * 60 * 60 * 1_000;
    // A time beyond the year 9999 is shown as its end.
    let millis = at.as_millis().min(253_402_300_799_999);
    let (year, month, day) = civil(millis / DAY);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let mut put = |place: usize, digits: usize, mut number: u64| {
        for digit in text[place..place + digits].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    };
    put(0, 4, year);
    put(5, 2, month);
    put(8, 2, day);
    put(11, 2, millis / 3_600_000 % 24);
    put(14, 2, millis / 60_000 % 60);
    put(17, 2, millis / 1_000 % 60);
    put(20, 3, millis % 1_000);
    String::from_utf8_lossy(&text).into_owned()
}

/// Year, month and day of a day since 1970, counted in years that begin in March, where leap days come last.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

pub(crate) fn event_view(venue: &Venue, summary: &EventSummary) -> api::EventView {
    let pools = venue.pools.iter().zip(&summary.pools).map(|(id, pool)| api::PoolView {
        id: id.to_string(),
        capacity: pool.capacity,
        free: pool.free(),
        held: pool.held,
        sold: pool.sold,
        blocked: pool.blocked,
    });
    api::EventView {
        id: venue.id.to_string(),
        name: venue.name.as_str().to_owned(),
        state: if summary.state == EventState::Open { "open" } else { "closed" }.to_owned(),
        version: summary.version.to_string(),
        seats: seat_counts(summary),
        pools: pools.collect(),
        policy: policy_view(&summary.policy),
        created_at: time(venue.created_at),
        sections: Vec::new(),
        seat_ids: Vec::new(),
        stale_ms: None,
    }
}

pub(crate) fn seat_counts(summary: &EventSummary) -> api::SeatCounts {
    let counts = summary.counts;
    api::SeatCounts {
        total: counts.total(),
        free: counts.free,
        held: counts.held,
        sold: counts.sold,
        blocked: counts.blocked,
    }
}

fn policy_view(policy: &Policy) -> api::PolicyView {
    api::PolicyView {
        hold_ttl_ms: policy.hold_ttl.0,
        hold_total_max_ms: policy.hold_total_max.0,
        extends_max: policy.extends_max,
        payment_max_ms: policy.payment_max.0,
        units_per_holder_max: policy.units_per_holder_max,
        payments_in_flight_max: policy.payments_in_flight_max,
        accept_late_payment: policy.accept_late_payment,
        at_payment_deadline: match policy.at_payment_deadline {
            AtPaymentDeadline::Expire => "expire",
            AtPaymentDeadline::Keep => "keep",
        }
        .to_owned(),
    }
}

/// The hold as an answer decided `at` shows it.
pub(crate) fn hold_view(venue: &Venue, hold: &Hold, at: Timestamp) -> api::HoldView {
    let paying = hold.payment.as_ref().filter(|_| hold.state == HoldState::Confirming);
    let until = match paying {
        Some(payment) => payment.deadline,
        None => hold.expires_at,
    };
    api::HoldView {
        hold_id: hold.id.to_string(),
        secret: None,
        event: venue.id.to_string(),
        state: hold.state.as_str().to_owned(),
        items: items(venue, &hold.items),
        holder: owned(hold.holder.as_ref()),
        version: hold.version,
        created_at: time(hold.created_at),
        expires_at: time(until),
        expires_in_ms: if hold.keeps_items() { until.since(at).0 } else { 0 },
        hard_deadline: time(hold.hard_deadline),
        payment: paying.map(|payment| api::PaymentView {
            payment_ref: payment.reference.to_string(),
            deadline: time(payment.deadline),
        }),
        booking_id: hold.booking.map(|booking| booking.to_string()),
        booking_state: None,
    }
}

pub(crate) fn refund_views(due: &RefundsDue) -> impl Iterator<Item = api::RefundView> {
    due.payments.iter().map(|payment| api::RefundView {
        payment_ref: payment.as_str().to_owned(),
        hold_id: due.hold.to_string(),
        holder: owned(due.holder.as_ref()),
    })
}

pub(crate) fn booking_state(booking: &Booking) -> &'static str {
    match booking.state {
        BookingState::Booked => "booked",
        BookingState::Cancelled => "cancelled",
    }
}

pub(crate) fn booking_view(venue: &Venue, booking: &Booking) -> api::BookingView {
    let cancelled = booking.state == BookingState::Cancelled;
    api::BookingView {
        booking_id: booking.id.to_string(),
        hold_id: booking.hold.to_string(),
        event: venue.id.to_string(),
        state: booking_state(booking).to_owned(),
        items: items(venue, &booking.items),
        holder: owned(booking.holder.as_ref()),
        payment_ref: owned(booking.payment_ref.as_ref()),
        order_ref: owned(booking.order_ref.as_ref()),
        revived: booking.revived,
        booked_at: time(booking.booked_at),
        cancelled_at: cancelled.then(|| time(booking.cancelled_at)),
    }
}

pub(crate) fn block_view(venue: &Venue, block: &Block) -> api::BlockView {
    let mut seats = Vec::new();
    let mut pools = Vec::new();
    for item in &block.items {
        match *item {
            Item::Seat { seat, .. } => seats.push(venue.layout.seat_name(seat).to_owned()),
            Item::Pool { pool, quantity } => {
                pools.push(api::BlockedUnits { id: venue.pools[pool.0 as usize].to_string(), quantity });
            }
        }
    }
    api::BlockView {
        block_id: block.id.to_string(),
        event: venue.id.to_string(),
        seats,
        pools,
        reason: block.reason.as_ref().map(Text::as_str).map(str::to_owned),
        created_at: time(block.created_at),
    }
}

pub(crate) fn pool_count(id: &str, pool: &PoolCounts) -> api::PoolCount {
    api::PoolCount {
        id: id.to_owned(),
        capacity: pool.capacity,
        free: pool.free(),
        held: pool.held,
        sold: pool.sold,
    }
}

pub(crate) fn letter(status: SeatStatus) -> char {
    match status {
        SeatStatus::Free => 'f',
        SeatStatus::Held => 'h',
        SeatStatus::Sold => 's',
        SeatStatus::Blocked => 'b',
    }
}

fn items(venue: &Venue, items: &[Item]) -> Vec<api::ItemView> {
    items
        .iter()
        .map(|item| match *item {
            Item::Seat { seat, fence } => api::ItemView {
                seat: Some(venue.layout.seat_name(seat).to_owned()),
                fence: Some(fence.0),
                ..api::ItemView::default()
            },
            Item::Pool { pool, quantity } => api::ItemView {
                pool: Some(venue.pools[pool.0 as usize].to_string()),
                quantity: Some(quantity),
                ..api::ItemView::default()
            },
        })
        .collect()
}

fn owned(reference: Option<&Reference>) -> Option<String> {
    reference.map(|reference| reference.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_library_writes_them() {
        let mut millis = 1_u64;
        for _ in 0..200_000 {
            millis = millis.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = millis % 253_402_300_800_000;
            let shown = jiff::Timestamp::from_millisecond(at as i64).unwrap();
            assert_eq!(time(Timestamp::from_millis(at)), format!("{shown:.3}"));
        }
        assert_eq!(time(Timestamp::NEVER), "9999-12-31T23:59:59.999Z");
    }
}
