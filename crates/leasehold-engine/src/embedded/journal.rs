//! Journal entries: what each change left behind, written once, laid over the tables at a restart.
//!
//! Nothing is ever executed again. An entry carries after-images, so a newer program reads an old
//! journal to the same state, whatever its rules have become.

use leasehold_core::{
    BlockSlot, BookingSlot, Changes, Entry, Epoch, EventNo, Fence, HoldEnd, HoldId, HoldSlot, HoldState,
    Kind, PoolNo, SeatNo, SeatStatus, State, Text, Timestamp, Touched,
};

use crate::bytes::{Damaged, Get, Put};
use crate::image;
use crate::{Change, SeatUpdate, Version};

const IMAGE_EVENT: u8 = 1;
const IMAGE_RULES: u8 = 2;
const IMAGE_SEAT: u8 = 3;
const IMAGE_POOL: u8 = 4;
const IMAGE_HOLD: u8 = 5;
const IMAGE_HOLD_END: u8 = 6;
const IMAGE_BOOKING: u8 = 7;
const IMAGE_BLOCK: u8 = 8;
const IMAGE_BLOCK_GONE: u8 = 9;
const IMAGE_PAYMENT: u8 = 10;
const IMAGE_REASON: u8 = 11;

/// Writes one entry with the images of all it touched, as they stand now.
pub(crate) fn put_entry(out: &mut Vec<u8>, state: &State, changes: &Changes, entry: &Entry) {
    out.put_u8(image::FORMAT);
    out.put_u64(entry.event.0.into());
    out.put_u64(entry.version);
    out.put_u64(entry.at.as_millis());
    let kind = Kind::ALL.iter().position(|kind| *kind == entry.kind).expect("every kind is listed");
    out.put_u8(kind as u8);
    let touched = changes.touched_by(entry);
    out.put_u64(touched.len() as u64);
    for thing in touched {
        put_image(out, state, entry.kind, thing);
    }
}

fn put_image(out: &mut Vec<u8>, state: &State, kind: Kind, thing: &Touched) {
    let here = "what a command touched is there";
    match thing {
        Touched::Event(event) => {
            let event = state.event(*event).expect(here);
            if kind == Kind::EventCreated {
                out.put_u8(IMAGE_EVENT);
                image::put_event(out, event);
            } else {
                out.put_u8(IMAGE_RULES);
                image::put_rules(out, event);
            }
        }
        Touched::Seat(_, seat, fence, seat_status) => {
            out.put_u8(IMAGE_SEAT);
            out.put_u64(seat.0.into());
            out.put_u64(fence.0);
            out.put_u8(status(*seat_status));
        }
        Touched::Pool(_, pool, counts) => {
            out.put_u8(IMAGE_POOL);
            out.put_u64(pool.0.into());
            image::put_pool_counts(out, counts);
        }
        Touched::Hold(slot) => {
            let hold = state.hold_at(*slot).expect(here);
            let ended = matches!(kind, Kind::HoldReleased | Kind::HoldExpired | Kind::HoldRevoked)
                && matches!(hold.state, HoldState::Released | HoldState::Expired | HoldState::Revoked);
            out.put_u8(if ended { IMAGE_HOLD_END } else { IMAGE_HOLD });
            out.put_u64(slot.0.into());
            if ended {
                out.put_u128(hold.id.as_raw());
                out.put_u8(image::hold_state(hold.state));
                out.put_u64(hold.version.into());
                out.put_u64(hold.ended_at.as_millis());
            } else {
                image::put_hold(out, hold);
            }
        }
        Touched::Booking(slot) => {
            out.put_u8(IMAGE_BOOKING);
            out.put_u64(slot.0.into());
            image::put_booking(out, state.booking_at(*slot).expect(here));
        }
        Touched::Block(slot) => {
            out.put_u8(IMAGE_BLOCK);
            out.put_u64(slot.0.into());
            image::put_block(out, state.block_at(*slot).expect(here));
        }
        Touched::BlockGone(slot) => {
            out.put_u8(IMAGE_BLOCK_GONE);
            out.put_u64(slot.0.into());
        }
        Touched::Payment(event, reference) => {
            out.put_u8(IMAGE_PAYMENT);
            image::put_payment(out, state.payment(*event, reference).expect(here));
        }
        Touched::Reason(text) => {
            out.put_u8(IMAGE_REASON);
            out.put_text(text.as_str());
        }
    }
}

/// What images are laid over.
pub(crate) struct Over<'a> {
    pub(crate) state: &'a mut State,
    /// What they touched.
    pub(crate) touched: &'a mut Vec<Touched>,
}

/// Reads one entry and returns it for the stream; lays its images over a state, unless that has them already.
pub(crate) fn replay_entry(
    get: &mut Get<'_>,
    epoch: Epoch,
    mut over: Option<Over<'_>>,
) -> Result<(EventNo, Change), Damaged> {
    if get.u8()? != image::FORMAT {
        return Err(Damaged);
    }
    let event = EventNo(get.u32()?);
    let version = get.u64()?;
    let at = Timestamp::from_millis(get.u64()?);
    let kind = *Kind::ALL.get(usize::from(get.u8()?)).ok_or(Damaged)?;
    let (mut seats, mut pools, mut whose, mut reason) = (Vec::new(), Vec::new(), None, None);
    for _ in 0..get.u64()? {
        match get.u8()? {
            IMAGE_EVENT => {
                let image = image::get_event(get)?;
                if let Some(Over { state, touched }) = &mut over {
                    state.load_event(image);
                    touched.push(Touched::Event(event));
                }
            }
            IMAGE_RULES => {
                let rules = image::get_rules(get)?;
                if let Some(Over { state, touched }) = &mut over {
                    let event_state = state.loading_event(event).ok_or(Damaged)?;
                    event_state.load_rules(rules.policy, rules.state, rules.version);
                    touched.push(Touched::Event(event));
                }
            }
            IMAGE_SEAT => {
                let (seat, fence) = (SeatNo(get.u32()?), Fence(get.u64()?));
                let status = read_status(get.u8()?)?;
                seats.push(SeatUpdate { seat, status });
                if let Some(Over { state, touched }) = &mut over {
                    state.loading_event(event).ok_or(Damaged)?.load_fence(seat, fence);
                    touched.push(Touched::Seat(event, seat, fence, status));
                }
            }
            IMAGE_POOL => {
                let pool = PoolNo(get.u32()?);
                let counts = image::get_pool_counts(get)?;
                pools.push((pool, counts));
                if let Some(Over { state, touched }) = &mut over {
                    state.loading_event(event).ok_or(Damaged)?.load_capacity(pool, counts.capacity);
                    touched.push(Touched::Pool(event, pool, Box::new(counts)));
                }
            }
            IMAGE_HOLD => {
                let slot = HoldSlot(get.u32()?);
                let hold = image::get_hold(get)?;
                whose = Some(hold.id);
                if let Some(Over { state, touched }) = &mut over {
                    state.load_hold(slot, hold);
                    touched.push(Touched::Hold(slot));
                }
            }
            IMAGE_HOLD_END => {
                let slot = HoldSlot(get.u32()?);
                let id = HoldId::from_raw(get.u128()?).ok_or(Damaged)?;
                whose = Some(id);
                let state_then = image::read_hold_state(get.u8()?)?;
                let version = get.u32()?;
                let ended_at = Timestamp::from_millis(get.u64()?);
                if let Some(Over { state, touched }) = &mut over {
                    state.load_hold_end(slot, id, HoldEnd { state: state_then, version, ended_at });
                    touched.push(Touched::Hold(slot));
                }
            }
            IMAGE_BOOKING => {
                let slot = BookingSlot(get.u32()?);
                let booking = image::get_booking(get)?;
                whose = Some(booking.hold);
                if let Some(Over { state, touched }) = &mut over {
                    state.load_booking(slot, booking);
                    touched.push(Touched::Booking(slot));
                }
            }
            IMAGE_BLOCK => {
                let slot = BlockSlot(get.u32()?);
                let block = image::get_block(get)?;
                reason.clone_from(&block.reason);
                if let Some(Over { state, touched }) = &mut over {
                    state.load_block(slot, block);
                    touched.push(Touched::Block(slot));
                }
            }
            IMAGE_BLOCK_GONE => {
                let slot = BlockSlot(get.u32()?);
                if let Some(Over { state, touched }) = &mut over {
                    state.unload_block(slot);
                    touched.push(Touched::BlockGone(slot));
                }
            }
            IMAGE_PAYMENT => {
                let payment = image::get_payment(get)?;
                whose = whose.or(Some(payment.hold));
                if let Some(Over { state, touched }) = &mut over {
                    touched.push(Touched::Payment(payment.event, payment.reference.clone()));
                    state.load_payment(payment);
                }
            }
            IMAGE_REASON => reason = Some(Text::parse(get.text()?).map_err(|_| Damaged)?),
            _ => return Err(Damaged),
        }
    }
    if let Some(Over { state, .. }) = &mut over {
        state.loading_event(event).ok_or(Damaged)?.version = version;
    }
    let version = Version { epoch, number: version };
    let (seats, pools) = (seats.into(), pools.into());
    Ok((event, Change { version, at, kind, hold: whose, reason, seats, pools }))
}

/// The entry as the stream shows it.
pub(crate) fn change_of(state: &State, changes: &Changes, entry: &Entry) -> Change {
    let touched = changes.touched_by(entry);
    // Exactly as much room as is needed: every entry comes through here.
    let mut seats = Vec::with_capacity(touched.iter().filter(|one| matches!(one, Touched::Seat(..))).count());
    let (mut pools, mut hold, mut reason) = (Vec::new(), None, None);
    for thing in touched {
        match thing {
            Touched::Seat(_, seat, _, status) => seats.push(SeatUpdate { seat: *seat, status: *status }),
            Touched::Pool(_, pool, counts) => pools.push((*pool, **counts)),
            Touched::Hold(slot) => hold = state.hold_at(*slot).map(|hold| hold.id),
            Touched::Booking(slot) => hold = state.booking_at(*slot).map(|booking| booking.hold),
            Touched::Payment(event, reference) if hold.is_none() => {
                hold = state.payment(*event, reference).map(|payment| payment.hold);
            }
            Touched::Block(slot) => reason = state.block_at(*slot).and_then(|block| block.reason.clone()),
            Touched::Reason(text) => reason = Some(text.clone()),
            _ => {}
        }
    }
    Change {
        version: Version { epoch: state.epoch(), number: entry.version },
        at: entry.at,
        kind: entry.kind,
        hold,
        reason,
        seats: seats.into(),
        pools: pools.into(),
    }
}

fn status(status: SeatStatus) -> u8 {
    match status {
        SeatStatus::Free => 0,
        SeatStatus::Held => 1,
        SeatStatus::Sold => 2,
        SeatStatus::Blocked => 3,
    }
}

fn read_status(byte: u8) -> Result<SeatStatus, Damaged> {
    Ok(match byte {
        0 => SeatStatus::Free,
        1 => SeatStatus::Held,
        2 => SeatStatus::Sold,
        3 => SeatStatus::Blocked,
        _ => return Err(Damaged),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leasehold_core::{
        Command, CreateEvent, CreateHold, ItemRequest, Layout, Millis, Name, Policy, PoolCounts, Text,
    };

    use super::*;

    #[test]
    fn a_command_that_ends_a_hold_and_takes_its_seat_shows_both_steps_live_and_after_a_restart() {
        let mut state = State::new(Epoch::FIRST);
        let mut changes = Changes::default();
        let begun = Timestamp::from_millis(1_000);
        let create = CreateEvent {
            id: Name::parse("gala").unwrap(),
            name: Text::parse("Gala").unwrap(),
            layout: Arc::new(Layout::grid(&[(Name::parse("A").unwrap(), 1, 1)]).unwrap()),
            pools: vec![(Name::parse("floor").unwrap(), 2)],
            policy: Policy::default(),
        };
        state.apply(Command::CreateEvent(create), begun, &mut changes).unwrap();
        let mut again = state.clone();
        let hold = |id| {
            let items = vec![ItemRequest::Seat(SeatNo(0)), ItemRequest::Pool(PoolNo(0), 2)];
            let (id, ttl) = (HoldId::from_raw(id).unwrap(), Some(Millis(1_000)));
            Command::CreateHold(CreateHold { event: EventNo(0), id, items, holder: None, ttl })
        };
        state.apply(hold(1), begun, &mut changes).unwrap();
        changes.clear();
        state.apply(hold(2), begun.after(Millis(1_000)), &mut changes).unwrap();

        let seat = |status| SeatUpdate { seat: SeatNo(0), status };
        let pool = |held| (PoolNo(0), PoolCounts { capacity: 2, held, sold: 0, blocked: 0 });
        let shown: Vec<Change> =
            changes.entries.iter().map(|entry| change_of(&state, &changes, entry)).collect();
        assert_eq!(
            shown.iter().map(|change| change.kind).collect::<Vec<_>>(),
            [Kind::HoldExpired, Kind::HoldCreated]
        );
        assert_eq!((&*shown[0].seats, &*shown[0].pools), (&[seat(SeatStatus::Free)][..], &[pool(0)][..]));
        assert_eq!((&*shown[1].seats, &*shown[1].pools), (&[seat(SeatStatus::Held)][..], &[pool(2)][..]));

        let whose = |id| Some(HoldId::from_raw(id).unwrap());
        assert_eq!((shown[0].hold, shown[1].hold), (whose(1), whose(2)));

        let mut journal = Vec::new();
        changes.entries.iter().for_each(|entry| put_entry(&mut journal, &state, &changes, entry));
        let mut get = Get(&journal);
        for change in shown {
            let over = Over { state: &mut again, touched: &mut Vec::new() };
            let (_, replayed) = replay_entry(&mut get, Epoch::FIRST, Some(over)).unwrap();
            assert_eq!(replayed, change);
        }
        assert!(get.is_empty());
    }
}
