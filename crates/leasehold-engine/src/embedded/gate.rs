//! The gate: turns losers away from memory, without queueing.
//!
//! For each seat it has the instant until which the seat is plainly taken. The writer sets it as soon as a
//! command was applied, before the commit: if that commit fails the process ends, so nobody is
//! refused for something that did not happen and then goes on.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use leasehold_core::limits::BEST_COUNT_MAX;
use leasehold_core::{
    Event, EventState, ItemRequest, Owner, PoolNo, Refusal, SeatNo, Section, SectionNo, State, Timestamp,
};

/// What is plainly taken in one event.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Until when each seat is taken, in milliseconds; 0 when free, the maximum when sold or blocked.
    taken_until: Box<[AtomicU64]>,
    /// For each pool its free units, and above them its held ones.
    pools: Box<[AtomicU64]>,
    /// How many seats nobody has, and above them those that are held.
    counts: AtomicU64,
    /// For each section where its seats end, and how many of them nobody has.
    sections: Box<[(u32, AtomicU32)]>,
    closed: AtomicBool,
}

impl Gate {
    pub(crate) fn new(event: &Event, state: &State) -> Self {
        let gate = Self {
            taken_until: event.seats().iter().map(|_| AtomicU64::new(0)).collect(),
            pools: event.pools().iter().map(|_| AtomicU64::new(0)).collect(),
            counts: AtomicU64::new(0),
            sections: sections(event),
            closed: AtomicBool::new(event.state == EventState::Closed),
        };
        for (place, seat) in event.seats().iter().enumerate().filter(|(_, seat)| seat.owner != Owner::Free) {
            gate.set_seat(SeatNo(place as u32), seat.owner, state);
        }
        gate.set_counts(event);
        for place in 0..event.pools().len() {
            gate.set_pool(PoolNo(place as u32), event);
        }
        gate
    }

    pub(crate) fn set_seat(&self, seat: SeatNo, owner: Owner, state: &State) {
        let until = match owner {
            Owner::Free => Timestamp::default(),
            Owner::Hold(slot) => state.hold_at(slot).map_or(Timestamp::default(), |hold| hold.live_until()),
            Owner::Booking(_) | Owner::Block(_) => Timestamp::NEVER,
        };
        let before = self.taken_until[seat.0 as usize].swap(until.as_millis(), Ordering::AcqRel);
        let (was_free, is_free) = (before == 0, until == Timestamp::default());
        if was_free != is_free {
            let section = self.sections.partition_point(|(end, _)| *end <= seat.0);
            match is_free {
                true => self.sections[section].1.fetch_add(1, Ordering::AcqRel),
                false => self.sections[section].1.fetch_sub(1, Ordering::AcqRel),
            };
        }
    }

    pub(crate) fn set_counts(&self, event: &Event) {
        let counts = event.counts();
        let packed = u64::from(counts.held) << 32 | u64::from(counts.free);
        self.counts.store(packed, Ordering::Release);
    }

    pub(crate) fn set_pool(&self, pool: PoolNo, event: &Event) {
        let known = &event.pools()[pool.0 as usize];
        let packed = u64::from(known.held) << 32 | u64::from(known.free());
        self.pools[pool.0 as usize].store(packed, Ordering::Release);
    }

    pub(crate) fn set_closed(&self, state: EventState) {
        self.closed.store(state == EventState::Closed, Ordering::Release);
    }

    /// The refusal of a hold that plainly cannot be granted at `now`. Every other request is for the writer.
    ///
    /// `nothing_due` says that no hold is over and still counted, so that "sold out" is true.
    pub(crate) fn refusal(
        &self,
        items: &[ItemRequest],
        now: Timestamp,
        nothing_due: bool,
    ) -> Option<Refusal> {
        if self.closed.load(Ordering::Acquire) {
            return Some(Refusal::EventClosed);
        }
        let mut taken = Vec::new();
        let mut short = None;
        let mut apart = None;
        for item in items {
            match *item {
                ItemRequest::Seat(seat) => {
                    let until = self.taken_until.get(seat.0 as usize)?;
                    if now.as_millis() < until.load(Ordering::Acquire) {
                        taken.push(seat);
                    }
                }
                ItemRequest::Pool(pool, quantity) if nothing_due => {
                    let packed = self.pools.get(pool.0 as usize)?.load(Ordering::Acquire);
                    let (available, returning) = (packed as u32, (packed >> 32) as u32);
                    if available < quantity {
                        short = short.or(Some(Refusal::PoolShort { pool, available, returning }));
                    }
                }
                ItemRequest::Best { count, section } if nothing_due && count <= BEST_COUNT_MAX => {
                    apart = apart.or(self.too_few(count, section));
                }
                ItemRequest::Pool(..) | ItemRequest::Best { .. } => {}
            }
        }
        // In the order in which the rules look.
        if taken.is_empty() { short.or(apart) } else { Some(Refusal::SeatsTaken(taken)) }
    }

    /// The refusal of seats together where there are not as many at all. Whether as many are together is for the
    /// rules, and so is a section that is not there.
    fn too_few(&self, count: u32, section: Option<SectionNo>) -> Option<Refusal> {
        let packed = self.counts.load(Ordering::Acquire);
        let (available, returning) = (packed as u32, (packed >> 32) as u32);
        let free = match section {
            None => available,
            Some(section) => self.sections.get(section.0 as usize)?.1.load(Ordering::Acquire),
        };
        (free < count).then_some(Refusal::NotTogether { available, returning })
    }
}

/// The sections with all their seats free. The seats of each follow those of the one before.
fn sections(event: &Event) -> Box<[(u32, AtomicU32)]> {
    let layout = &event.layout;
    let mut begin = 0;
    let section = |section: &Section| {
        let rows = &layout.rows()[section.rows.start as usize..section.rows.end as usize];
        let end = rows.last().map_or(begin, |row| row.seats.end);
        let seats = end - begin;
        begin = end;
        (end, AtomicU32::new(seats))
    };
    layout.sections().iter().map(section).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leasehold_core::{
        Changes, Command, CreateEvent, CreateHold, Epoch, EventNo, HoldId, Layout, Name, Policy, Text,
    };

    use super::*;
    use crate::embedded::hall::Hall;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    /// An event with a section of three seats and one of two, and its gate.
    struct Stage {
        state: State,
        hall: Hall,
        ids: u128,
    }

    impl Stage {
        fn new() -> Self {
            let mut state = State::new(Epoch::FIRST);
            let sections = ["A", "B"].map(|name| Name::parse(name).unwrap());
            let layout = Layout::grid(&[(sections[0].clone(), 1, 3), (sections[1].clone(), 1, 2)]).unwrap();
            let create = CreateEvent {
                id: Name::parse("gala").unwrap(),
                name: Text::parse("Gala").unwrap(),
                layout: Arc::new(layout),
                pools: Vec::new(),
                policy: Policy::default(),
            };
            state.apply(Command::CreateEvent(create), NOW, &mut Changes::default()).unwrap();
            let hall = Hall::new(state.event(EventNo(0)).unwrap(), &state, &Arc::default());
            Self { state, hall, ids: 0 }
        }

        /// Asks the rules, and lets the gate know what came of it.
        fn ask(&mut self, items: &[ItemRequest]) -> Result<(), Refusal> {
            self.ids += 1;
            let create = CreateHold {
                event: EventNo(0),
                id: HoldId::from_raw(self.ids).unwrap(),
                items: items.to_vec(),
                holder: None,
                ttl: None,
            };
            self.apply(Command::CreateHold(create))
        }

        fn apply(&mut self, command: Command) -> Result<(), Refusal> {
            let mut changes = Changes::default();
            let outcome = self.state.apply(command, NOW, &mut changes);
            changes.touched.iter().for_each(|touched| self.hall.pass_on(touched, &self.state));
            outcome.map(drop)
        }

        fn refusal(&self, items: &[ItemRequest]) -> Option<Refusal> {
            self.hall.gate.refusal(items, NOW, true)
        }
    }

    fn best(count: u32, section: Option<u32>) -> ItemRequest {
        ItemRequest::Best { count, section: section.map(SectionNo) }
    }

    #[test]
    fn who_asks_for_more_seats_than_there_are_is_refused_as_the_rules_do() {
        let mut stage = Stage::new();
        for (wish, is_refused) in [
            (best(5, None), false),
            (best(6, None), true),
            (best(3, Some(0)), false),
            (best(4, Some(0)), true),
            (best(3, Some(1)), true),
        ] {
            let refusal = stage.refusal(&[wish]);
            assert_eq!(refusal.is_some(), is_refused, "{wish:?}: {refusal:?}");
            if is_refused {
                assert_eq!(stage.ask(&[wish]).unwrap_err(), refusal.unwrap(), "{wish:?}");
            }
        }
        stage.ask(&[ItemRequest::Seat(SeatNo(3))]).unwrap();
        let short = stage.refusal(&[best(2, Some(1))]);
        assert_eq!(short, Some(Refusal::NotTogether { available: 4, returning: 1 }));
        assert_eq!(stage.ask(&[best(2, Some(1))]).unwrap_err(), short.unwrap());
        assert_eq!(stage.refusal(&[best(1, Some(1))]), None);
        stage.apply(Command::ReleaseHold(HoldId::from_raw(stage.ids - 1).unwrap())).unwrap();
        assert_eq!(stage.refusal(&[best(2, Some(1))]), None, "what was given back counts again");
        stage.ask(&[best(3, Some(0)), best(2, Some(1))]).unwrap();
        assert_eq!(
            stage.refusal(&[best(1, None)]),
            Some(Refusal::NotTogether { available: 0, returning: 5 })
        );
    }

    #[test]
    fn what_the_gate_cannot_know_is_for_the_rules() {
        let mut stage = Stage::new();
        stage.ask(&[best(3, Some(0)), best(2, Some(1))]).unwrap();
        for wish in [best(1, Some(7)), best(0, None), best(BEST_COUNT_MAX + 1, None)] {
            assert_eq!(stage.refusal(&[wish]), None, "{wish:?}");
        }
        assert_eq!(stage.hall.gate.refusal(&[best(1, None)], NOW, false), None, "something is due");
        let both = [ItemRequest::Seat(SeatNo(0)), best(1, None)];
        assert_eq!(stage.refusal(&both), Some(Refusal::SeatsTaken(vec![SeatNo(0)])), "seats come first");
    }
}
