//! States and steps that are broken on purpose: each must be reported, by its number.

use std::sync::Arc;

use super::*;
use crate::{
    BeginPayment, BookingId, BookingSlot, ConfirmHold, CreateEvent, CreateHold, Entry, Epoch, HoldSlot,
    Layout, Millis, Name, Policy, Reference, Text,
};

const EVENT: EventNo = EventNo(0);
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A state that its watch has seen from the beginning.
struct Stage {
    state: State,
    watch: Watch,
}

impl Stage {
    /// Ada holds a seat and two units, Bob bought a seat, Cleo is paying for one, and one seat is free.
    fn new() -> Self {
        let mut stage = Self { state: State::new(Epoch::FIRST), watch: Watch::default() };
        let create = CreateEvent {
            id: Name::parse("gala").unwrap(),
            name: Text::parse("Gala").unwrap(),
            layout: Arc::new(Layout::grid(&[(Name::parse("A").unwrap(), 1, 4)]).unwrap()),
            pools: vec![(Name::parse("floor").unwrap(), 5)],
            policy: Policy { units_per_holder_max: 3, ..Policy::default() },
        };
        stage.apply(Command::CreateEvent(create));
        stage.apply(hold(1, "ada", &[ItemRequest::Seat(SeatNo(0)), ItemRequest::Pool(PoolNo(0), 2)]));
        stage.apply(hold(2, "bob", &[ItemRequest::Seat(SeatNo(1))]));
        stage.apply(confirm(2, "pay-1"));
        stage.apply(hold(3, "cleo", &[ItemRequest::Seat(SeatNo(2))]));
        stage.apply(begin(3, "pay-2"));
        stage
    }

    /// A step that is in order.
    fn apply(&mut self, command: Command) {
        let mut changes = Changes::default();
        let outcome = self.state.apply(command.clone(), START, &mut changes);
        assert!(outcome.is_ok(), "{outcome:?}");
        assert_eq!(self.watch.step(&self.state, &command, &changes, &outcome, START), []);
        assert_eq!(check(&self.state), []);
    }

    /// Which invariants the watch reports when a command is carried out at `now`, and shown to it after `spoil`.
    fn spoilt(
        &mut self,
        command: Command,
        now: Timestamp,
        spoil: impl FnOnce(&mut State, &mut Changes, &mut Result<Reply, Refusal>),
    ) -> Vec<&'static str> {
        let mut changes = Changes::default();
        let mut outcome = self.state.apply(command.clone(), now, &mut changes);
        spoil(&mut self.state, &mut changes, &mut outcome);
        numbers(&self.watch.step(&self.state, &command, &changes, &outcome, START))
    }
}

fn numbers(broken: &[Broken]) -> Vec<&'static str> {
    broken.iter().map(|broken| broken.invariant).collect()
}

fn reference(text: &str) -> Reference {
    Reference::parse(text).unwrap()
}

fn hold(id: u128, holder: &str, items: &[ItemRequest]) -> Command {
    let (id, holder) = (HoldId::from_raw(id).unwrap(), Some(reference(holder)));
    Command::CreateHold(CreateHold { event: EVENT, id, items: items.to_vec(), holder, ttl: None })
}

fn confirm(hold: u128, payment: &str) -> Command {
    Command::ConfirmHold(ConfirmHold {
        hold: HoldId::from_raw(hold).unwrap(),
        booking: BookingId::from_raw(hold).unwrap(),
        payment_ref: Some(reference(payment)),
        order_ref: None,
        items: None,
    })
}

fn begin(hold: u128, payment: &str) -> Command {
    let hold = HoldId::from_raw(hold).unwrap();
    Command::BeginPayment(BeginPayment { hold, reference: reference(payment), max_wait: None })
}

fn release(hold: u128) -> Command {
    Command::ReleaseHold(HoldId::from_raw(hold).unwrap())
}

#[test]
fn a_broken_state_is_reported_by_number() {
    type Break = fn(&mut State);
    let (ada, bob) = (HoldSlot(0), HoldSlot(1));
    assert_eq!(Stage::new().state.hold_at(bob).map(|hold| hold.id), HoldId::from_raw(2));
    let breaks: [(&[&str], Break); 14] = [
        (&["I1", "I18", "I18", "I2"], |state| {
            let stolen = state.hold_at(HoldSlot(0)).unwrap().items[0];
            state.bookings.get_mut(BookingSlot(0).0).unwrap().items = Box::new([stolen]);
        }),
        (&["I18", "I2"], |state| state.event_mut(EVENT).set_owner(SeatNo(0), Owner::Free)),
        (&["I2"], |state| state.event_mut(EVENT).pool_mut(PoolNo(0)).capacity = 1),
        (&["I3"], |state| state.event_mut(EVENT).pool_mut(PoolNo(0)).held += 1),
        (&["I5", "I5"], |state| state.unschedule(HoldSlot(0))),
        (&["I5"], |state| state.hold_mut(HoldSlot(0)).life_end = START),
        (&["I5"], |state| state.hold_mut(HoldSlot(0)).hard_deadline = START),
        (&["I6", "I6"], |state| state.hold_mut(HoldSlot(1)).booking = None),
        (&["I6", "I7"], |state| {
            state.bookings.get_mut(BookingSlot(0).0).unwrap().hold = HoldId::from_raw(1).unwrap();
        }),
        (&["I7"], |state| state.payments.set_state(EVENT, &reference("pay-2"), PaymentState::RefundDue)),
        (&["I7"], |state| drop(state.payments.forget(EVENT, HoldId::from_raw(2).unwrap()))),
        (&["I7"], |state| drop(state.payments.forget(EVENT, HoldId::from_raw(3).unwrap()))),
        (&["I12"], |state| state.event_mut(EVENT).count_holder(Some(&reference("ada")), 1)),
        (&["I19"], |state| state.event_mut(EVENT).count_payment_over()),
    ];
    for (expected, break_it) in breaks {
        let mut state = Stage::new().state;
        break_it(&mut state);
        let broken = check(&state);
        assert_eq!(numbers(&broken), expected, "{broken:#?}");
    }
    let mut state = Stage::new().state;
    state.hold_mut(ada).state = HoldState::Released;
    assert!(numbers(&check(&state)).contains(&"I18"), "a seat that nobody claims");
}

#[test]
fn a_broken_step_is_reported_by_number() {
    let seat = |number| ItemRequest::Seat(SeatNo(number));
    let ordinary = || hold(9, "dora", &[ItemRequest::Seat(SeatNo(3))]);
    let found = |command, spoil: fn(&mut State, &mut Changes, &mut Result<Reply, Refusal>)| {
        Stage::new().spoilt(command, START, spoil)
    };
    assert_eq!(found(ordinary(), |_, _, _| {}), Vec::<&str>::new());
    assert_eq!(found(ordinary(), |_, changes, _| changes.entries[0].seq += 1), ["I14"]);
    assert_eq!(found(ordinary(), |_, changes, _| changes.entries[0].version += 1), ["I14"]);
    assert_eq!(found(ordinary(), |_, _, outcome| *outcome = Err(Refusal::EventClosed)), ["I10"]);
    let lower = |state: &mut State, _: &mut Changes, _: &mut Result<Reply, Refusal>| {
        state.event_mut(EVENT).policy.units_per_holder_max = 1;
    };
    assert_eq!(found(hold(9, "dora", &[seat(3), ItemRequest::Pool(PoolNo(0), 1)]), lower), ["I12"]);
    assert_eq!(found(ordinary(), lower), Vec::<&str>::new());
    let crowd = |state: &mut State, _: &mut Changes, _: &mut Result<Reply, Refusal>| {
        state.event_mut(EVENT).policy.payments_in_flight_max = 1;
    };
    assert_eq!(found(begin(1, "pay-3"), crowd), ["I19"]);
    assert_eq!(found(ordinary(), crowd), Vec::<&str>::new());
    // Ada's seat passes to Cleo without a higher fence.
    let passed_on = |state: &mut State, _: &mut Changes, _: &mut Result<Reply, Refusal>| {
        state.event_mut(EVENT).set_owner(SeatNo(0), Owner::Hold(HoldSlot(2)));
    };
    assert_eq!(found(release(1), passed_on), ["I4"]);
    // Bob's sold hold comes back to life.
    let revive = |state: &mut State, changes: &mut Changes, _: &mut Result<Reply, Refusal>| {
        state.hold_mut(HoldSlot(1)).state = HoldState::Held;
        changes.touched.push(Touched::Hold(HoldSlot(1)));
        let Entry { touched, .. } = &mut changes.entries[0];
        touched.end += 1;
    };
    assert_eq!(found(ordinary(), revive), ["I8"]);
    // Ada's hold ends once more, and Bob's sale is cancelled once more.
    let again = |stage: &mut Stage, what: Touched, kind: Kind| {
        let spoil = |_: &mut State, changes: &mut Changes, _: &mut Result<Reply, Refusal>| {
            changes.touched.push(what);
            let entry = &mut changes.entries[0];
            entry.kind = kind;
            entry.touched.end += 1;
        };
        stage.spoilt(ordinary(), START, spoil)
    };
    let mut stage = Stage::new();
    stage.apply(release(1));
    for kind in [Kind::HoldReleased, Kind::HoldExpired, Kind::HoldRevoked] {
        let mut stage = Stage { state: stage.state.clone(), watch: stage.watch.clone() };
        assert_eq!(again(&mut stage, Touched::Hold(HoldSlot(0)), kind), ["I8"]);
    }
    stage.apply(Command::CancelBooking(crate::CancelBooking { booking: BookingId::from_raw(2).unwrap() }));
    assert_eq!(again(&mut stage, Touched::Booking(BookingSlot(0)), Kind::BookingCancelled), ["I8"]);
    // Ada's hold comes back without a sale.
    let mut stage = Stage::new();
    stage.apply(release(1));
    let back = |state: &mut State, changes: &mut Changes, _: &mut Result<Reply, Refusal>| {
        state.hold_mut(HoldSlot(0)).state = HoldState::Held;
        changes.touched.push(Touched::Hold(HoldSlot(0)));
        changes.entries[0].touched.end += 1;
    };
    assert_eq!(stage.spoilt(ordinary(), START, back), ["I8"]);
}

#[test]
fn a_kept_hold_ends_with_its_life_when_its_payment_has_failed_and_not_before() {
    let kept = || {
        let mut stage = Stage::new();
        stage.state.event_mut(EVENT).policy.at_payment_deadline = crate::AtPaymentDeadline::Keep;
        stage.apply(begin(1, "pay-3"));
        stage
    };
    let failed = Command::PaymentFailed(HoldId::from_raw(1).unwrap(), reference("pay-3"));
    let mut stage = kept();
    let life_end = stage.state.hold_at(HoldSlot(0)).unwrap().life_end;
    for (seen_at, found) in [(life_end, vec![]), (START, vec!["I15"])] {
        let mut stage = kept();
        let mut changes = Changes::default();
        let outcome = stage.state.apply(failed.clone(), life_end, &mut changes);
        assert!(outcome.is_ok() && changes.entries[0].kind == Kind::HoldExpired, "{changes:?}");
        assert_eq!(numbers(&stage.watch.step(&stage.state, &failed, &changes, &outcome, seen_at)), found);
    }
    stage.apply(failed);
}

#[test]
fn a_step_at_the_wrong_time_is_reported_by_number() {
    // Carried out an hour later, but shown to the watch as if no time had passed.
    let later = START.after(Millis(3_600_000));
    let early = Stage::new().spoilt(release(1), later, |_, _, _| {});
    assert_eq!(early, ["I15"]);
    // Sold in time, but shown as if it had been over.
    let mut stage = Stage::new();
    let mut changes = Changes::default();
    let command = confirm(3, "pay-2");
    let outcome = stage.state.apply(command.clone(), START, &mut changes);
    assert_eq!(numbers(&stage.watch.step(&stage.state, &command, &changes, &outcome, later)), ["I6"]);
}

#[test]
fn a_false_refusal_is_reported() {
    let ask = |items: &[ItemRequest], refusal: Refusal| {
        let mut stage = Stage::new();
        let command = hold(9, "dora", items);
        numbers(&stage.watch.step(&stage.state, &command, &Changes::default(), &Err(refusal), START))
    };
    let (taken, free) = (SeatNo(0), SeatNo(3));
    let both = [ItemRequest::Seat(taken), ItemRequest::Seat(free)];
    assert_eq!(ask(&both, Refusal::SeatsTaken(vec![taken])), Vec::<&str>::new());
    for falsely in [vec![free], vec![taken, free], vec![SeatNo(1)], Vec::new()] {
        assert_eq!(ask(&both, Refusal::SeatsTaken(falsely)), ["I16"]);
    }
    let short = |available| Refusal::PoolShort { pool: PoolNo(0), available, returning: 2 };
    let units = |quantity| [ItemRequest::Pool(PoolNo(0), quantity)];
    assert_eq!(ask(&units(4), short(3)), Vec::<&str>::new());
    assert_eq!(ask(&units(3), short(3)), ["I16"], "as many were there");
    assert_eq!(ask(&units(4), short(2)), ["I16"], "more were there than it says");
    let together = |count| ItemRequest::Best { count, section: None };
    let apart = || Refusal::NotTogether { available: 1, returning: 2 };
    assert_eq!(ask(&[together(2)], apart()), Vec::<&str>::new());
    assert_eq!(
        ask(&[together(1), ItemRequest::Seat(free)], apart()),
        Vec::<&str>::new(),
        "it is asked for itself"
    );
    assert_eq!(ask(&[together(1)], apart()), ["I16"], "one was there");
    assert_eq!(ask(&both, apart()), ["I16"], "nobody asked for seats together");
    assert_eq!(ask(&both, Refusal::NotYet), ["I16"], "nothing is due");
    let limited = |items: &[ItemRequest], has, limit, now| {
        let mut stage = Stage::new();
        let command = hold(9, "ada", items);
        let refused = Err(Refusal::HolderLimit { has, limit });
        numbers(&stage.watch.step(&stage.state, &command, &Changes::default(), &refused, now))
    };
    let (one, four) = ([ItemRequest::Seat(free)], [together(4)]);
    assert_eq!(limited(&one, 3, 3, START), Vec::<&str>::new(), "Ada has a seat and two units");
    assert_eq!(limited(&one, 2, 3, START), ["I16"], "she has more than it says");
    assert_eq!(limited(&one, 3, 2, START), ["I16"], "the limit is another one");
    assert_eq!(limited(&[], 3, 3, START), ["I16"], "nothing is within the limit");
    let later = START.after(Millis(3_600_000));
    assert_eq!(limited(&one, 3, 3, later), ["I16"], "what she has is over");
    assert_eq!(limited(&four, 3, 3, later), Vec::<&str>::new(), "nobody may have four");
    for (limit, found) in [(0, vec!["I16"]), (1, vec![]), (2, vec!["I16"])] {
        let mut stage = Stage::new();
        stage.state.event_mut(EVENT).policy.payments_in_flight_max = limit;
        let refused = Err(Refusal::PaymentsBusy);
        let broken = stage.watch.step(&stage.state, &begin(1, "pay-3"), &Changes::default(), &refused, START);
        assert_eq!(numbers(&broken), found, "one payment is in progress, the limit is {limit}");
    }
}
