//! Requests: from JSON to commands, with every text checked.

use std::sync::Arc;

use leasehold_api as api;
use leasehold_core::limits::{
    HOLD_TTL_MAX, HOLD_TTL_MIN, ITEMS_PER_HOLD_MAX, SEATS_PER_BLOCK_MAX, SEATS_PER_EVENT_MAX,
};
use leasehold_core::{
    AmendHold, AtPaymentDeadline, BeginPayment, Command, ConfirmHold, CreateBlock, CreateEvent, CreateHold,
    EventPatch, HoldId, ItemRequest, Layout, Millis, Name, Policy, PolicyPatch, PoolNo, Reference, Text,
};
use leasehold_engine::{Venue, new_block_id, new_booking_id, new_hold_id};

use crate::problem::ApiError;

pub(crate) fn create_event(body: api::CreateEvent) -> Result<Command, ApiError> {
    let id = name("id", &body.id)?;
    let title = text("name", body.name.as_deref().unwrap_or(&body.id))?;
    let layout = match (&body.layout, body.seats.is_empty()) {
        (Some(_), false) => return Err(ApiError::invalid("either seats or a layout, not both")),
        (Some(layout), true) => grid(layout)?,
        (None, _) => listed(&body.seats)?,
    };
    let pools = body.pools.iter().map(|pool| Ok((name("a pool's id", &pool.id)?, pool.capacity)));
    let pools = pools.collect::<Result<Vec<_>, ApiError>>()?;
    let changes = body.policy.as_ref().map(policy).transpose()?.unwrap_or_default();
    let policy = Policy::default().patched(changes)?;
    Ok(Command::CreateEvent(CreateEvent { id, name: title, layout: Arc::new(layout), pools, policy }))
}

fn grid(layout: &api::LayoutSpec) -> Result<Layout, ApiError> {
    let seats = |one: &api::SectionSpec| u64::from(one.rows) * u64::from(one.seats_per_row);
    let total = layout.sections.iter().fold(0, |sum: u64, one| sum.saturating_add(seats(one)));
    if total > SEATS_PER_EVENT_MAX as u64 {
        return Err(ApiError::invalid(format!("at most {SEATS_PER_EVENT_MAX} seats")));
    }
    let section =
        |one: &api::SectionSpec| Ok((name("a section's name", &one.name)?, one.rows, one.seats_per_row));
    let sections = layout.sections.iter().map(section).collect::<Result<Vec<_>, ApiError>>()?;
    Ok(Layout::grid(&sections)?)
}

/// Seats one by one. Those of one section are brought together, in the order the sections were first named.
fn listed(seats: &[api::SeatSpec]) -> Result<Layout, ApiError> {
    let mut order: Vec<&str> = Vec::new();
    let mut places = std::collections::HashMap::new();
    let mut placed = Vec::with_capacity(seats.len());
    for seat in seats {
        let (id, section, row) = match seat {
            api::SeatSpec::Id(id) => {
                (id.as_str(), id.rsplit_once('-').map_or("", |(section, _)| section), "")
            }
            api::SeatSpec::Placed(seat) => {
                (seat.id.as_str(), seat.section.as_deref().unwrap_or(""), seat.row.as_deref().unwrap_or(""))
            }
        };
        for (field, value) in [("a seat's section", section), ("a seat's row", row)] {
            if !value.is_empty() {
                name(field, value)?;
            }
        }
        let place = *places.entry(section).or_insert_with(|| {
            order.push(section);
            order.len()
        });
        placed.push((place, (id, section, row)));
    }
    placed.sort_by_key(|(place, _)| *place);
    Ok(Layout::from_seats(placed.into_iter().map(|(_, seat)| seat))?)
}

fn policy(patch: &api::PolicySpec) -> Result<PolicyPatch, ApiError> {
    let at_payment_deadline = match patch.at_payment_deadline.as_deref() {
        None => None,
        Some("expire") => Some(AtPaymentDeadline::Expire),
        Some("keep") => Some(AtPaymentDeadline::Keep),
        Some(_) => return Err(ApiError::invalid("at_payment_deadline is `expire` or `keep`")),
    };
    Ok(PolicyPatch {
        hold_ttl: patch.hold_ttl_ms.map(Millis),
        hold_total_max: patch.hold_total_max_ms.map(Millis),
        extends_max: patch.extends_max,
        payment_max: patch.payment_max_ms.map(Millis),
        units_per_holder_max: patch.units_per_holder_max,
        payments_in_flight_max: patch.payments_in_flight_max,
        accept_late_payment: patch.accept_late_payment,
        at_payment_deadline,
    })
}

pub(crate) fn event_patch(venue: &Venue, body: &api::PatchEvent) -> Result<EventPatch, ApiError> {
    let open = match body.state.as_deref() {
        None => None,
        Some("open") => Some(true),
        Some("closed") => Some(false),
        Some(_) => return Err(ApiError::invalid("state is `open` or `closed`")),
    };
    let mut capacities = Vec::with_capacity(body.pools.len());
    for pool in &body.pools {
        let number = pool_number(venue, &pool.id)?;
        if capacities.iter().any(|(known, _)| *known == number) {
            return Err(ApiError::invalid("a pool is there twice"));
        }
        capacities.push((number, pool.capacity));
    }
    let policy = body.policy.as_ref().map(policy).transpose()?;
    if policy.is_none() && capacities.is_empty() && open.is_none() {
        return Err(ApiError::invalid("there is nothing to change"));
    }
    Ok(EventPatch { policy, capacities, open })
}

/// The items of a new hold, if the request makes sense.
pub(crate) fn wanted_items(venue: &Venue, body: &api::CreateHold) -> Result<Vec<ItemRequest>, ApiError> {
    let ttl = body.ttl_ms.map(Millis);
    if ttl.is_some_and(|ttl| ttl < HOLD_TTL_MIN || ttl > HOLD_TTL_MAX) {
        let range = format!("ttl_ms is between {} and {}", HOLD_TTL_MIN.0, HOLD_TTL_MAX.0);
        return Err(ApiError::invalid(range));
    }
    if body.items.is_empty() {
        return Err(ApiError::invalid("there must be at least one item"));
    }
    if let Some(holder) = &body.holder {
        Reference::check(holder).map_err(|bad| ApiError::bad_name("holder", bad))?;
    }
    items(venue, &body.items)
}

pub(crate) fn create_hold(
    venue: &Venue,
    body: &api::CreateHold,
    items: Vec<ItemRequest>,
) -> Result<Command, ApiError> {
    Ok(Command::CreateHold(CreateHold {
        event: venue.number,
        id: new_hold_id(),
        items,
        holder: reference("holder", body.holder.as_deref())?,
        ttl: body.ttl_ms.map(Millis),
    }))
}

pub(crate) fn amend_hold(venue: &Venue, hold: HoldId, body: &api::PatchHold) -> Result<Command, ApiError> {
    Ok(Command::AmendHold(AmendHold {
        hold,
        extend: body.extend_ms.map(Millis),
        add: items(venue, &body.add)?,
        remove: items(venue, &body.remove)?,
        version: body.version,
    }))
}

pub(crate) fn begin_payment(hold: HoldId, body: &api::BeginPayment) -> Result<Command, ApiError> {
    let reference = required_reference("payment_ref", &body.payment_ref)?;
    Ok(Command::BeginPayment(BeginPayment { hold, reference, max_wait: body.max_wait_ms.map(Millis) }))
}

pub(crate) fn payment_failed(hold: HoldId, body: &api::PaymentFailed) -> Result<Command, ApiError> {
    Ok(Command::PaymentFailed(hold, required_reference("payment_ref", &body.payment_ref)?))
}

pub(crate) fn confirm_hold(
    venue: Option<&Venue>,
    hold: HoldId,
    body: &api::ConfirmHold,
) -> Result<Command, ApiError> {
    let items = match (&body.items, venue) {
        (Some(list), _) if list.is_empty() => {
            return Err(ApiError::invalid("there must be at least one item"));
        }
        (Some(list), Some(venue)) => Some(items(venue, list)?),
        // Without a venue the hold is not known, and its items do not matter.
        (None, _) | (Some(_), None) => None,
    };
    Ok(Command::ConfirmHold(ConfirmHold {
        hold,
        booking: new_booking_id(),
        payment_ref: reference("payment_ref", body.payment_ref.as_deref())?,
        order_ref: reference("order_ref", body.order_ref.as_deref())?,
        items,
    }))
}

pub(crate) fn create_block(venue: &Venue, body: &api::CreateBlock) -> Result<Command, ApiError> {
    if body.seats.len() + body.pools.len() > SEATS_PER_BLOCK_MAX {
        return Err(ApiError::invalid(format!("at most {SEATS_PER_BLOCK_MAX} items")));
    }
    let seats = body.seats.iter().map(|id| seat(venue, id));
    let mut items = seats.collect::<Result<Vec<_>, _>>()?;
    for units in &body.pools {
        items.push(pool(venue, &units.id, units.quantity)?);
    }
    let reason = reason(body.reason.as_deref())?;
    Ok(Command::CreateBlock(CreateBlock { event: venue.number, id: new_block_id(), items, reason }))
}

pub(crate) fn reason(reason: Option<&str>) -> Result<Option<Text>, ApiError> {
    reason.map(|reason| text("reason", reason)).transpose()
}

/// Items by name. What makes no sense is refused before anyone looks who has it.
fn items(venue: &Venue, specs: &[api::ItemSpec]) -> Result<Vec<ItemRequest>, ApiError> {
    if specs.len() > ITEMS_PER_HOLD_MAX {
        return Err(ApiError::invalid(format!("at most {ITEMS_PER_HOLD_MAX} items")));
    }
    let mut items: Vec<ItemRequest> = Vec::with_capacity(specs.len());
    for spec in specs {
        let item = match (&spec.seat, &spec.pool, &spec.best, spec.quantity) {
            (Some(id), None, None, None) => seat(venue, id)?,
            (None, Some(id), None, quantity) => pool(venue, id, quantity.unwrap_or(1))?,
            (None, None, Some(best), None) => {
                if best.count == 0 {
                    return Err(ApiError::invalid("a count is at least 1"));
                }
                let section = match best.section.as_deref() {
                    None => None,
                    Some(section) => {
                        if !section.is_empty() {
                            name("section", section)?;
                        }
                        Some(venue.layout.section(section).ok_or_else(ApiError::not_found)?)
                    }
                };
                ItemRequest::Best { count: best.count, section }
            }
            _ => return Err(ApiError::invalid("an item is one of seat, pool with quantity, and best")),
        };
        if matches!(item, ItemRequest::Seat(_)) && items.contains(&item) {
            return Err(ApiError::invalid("a seat is there twice"));
        }
        items.push(item);
    }
    Ok(items)
}

fn seat(venue: &Venue, id: &str) -> Result<ItemRequest, ApiError> {
    match venue.layout.seat(id) {
        Some(seat) => Ok(ItemRequest::Seat(seat)),
        // Only now is it worth knowing whether it could be a seat's id at all.
        None => Err(name("a seat's id", id).err().unwrap_or_else(ApiError::not_found)),
    }
}

fn pool(venue: &Venue, id: &str, quantity: u32) -> Result<ItemRequest, ApiError> {
    if quantity == 0 {
        return Err(ApiError::invalid("a quantity is at least 1"));
    }
    Ok(ItemRequest::Pool(pool_number(venue, id)?, quantity))
}

fn pool_number(venue: &Venue, id: &str) -> Result<PoolNo, ApiError> {
    match venue.pool(id) {
        Some(pool) => Ok(pool),
        None => Err(name("a pool's id", id).err().unwrap_or_else(ApiError::not_found)),
    }
}

fn name(field: &str, value: &str) -> Result<Name, ApiError> {
    Name::parse(value).map_err(|bad| ApiError::bad_name(field, bad))
}

fn text(field: &str, value: &str) -> Result<Text, ApiError> {
    Text::parse(value).map_err(|bad| ApiError::bad_name(field, bad))
}

fn required_reference(field: &str, value: &str) -> Result<Reference, ApiError> {
    Reference::parse(value).map_err(|bad| ApiError::bad_name(field, bad))
}

fn reference(field: &str, value: Option<&str>) -> Result<Option<Reference>, ApiError> {
    value.map(|value| required_reference(field, value)).transpose()
}
