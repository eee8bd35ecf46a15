//! Random commands, and every invariant after each of them.
//!
//! A failure prints its seed; `LEASEHOLD_SEED=n` runs that seed alone.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "only the rules themselves do not print"
)]

use std::collections::BTreeSet;

use leasehold_core::invariants::{Watch, check};
use leasehold_core::random::RandomCommands;
use leasehold_core::{Changes, Epoch, Reply, State, Timestamp};

const CASES: u64 = 2_500;
const COMMANDS: usize = 200;

/// Every kind of entry, every refusal that random commands can meet, and a hold that came back with a late payment.
const MUST_BE_SEEN: [&str; 35] = [
    "BlockCreated",
    "BlockRemoved",
    "BookingCancelled",
    "BookingCreated",
    "EventClosed",
    "EventCreated",
    "EventOpened",
    "EventUpdated",
    "HoldAmended",
    "HoldCreated",
    "HoldExpired",
    "HoldExtended",
    "HoldReleased",
    "HoldRevoked",
    "PaymentBegun",
    "PaymentFailed",
    "RefundDue",
    "refused: BadPolicy",
    "refused: CapacityInUse",
    "refused: EventClosed",
    "refused: ExtendCap",
    "refused: HoldForgotten",
    "refused: HoldIs",
    "refused: HoldOver",
    "refused: HolderLimit",
    "refused: Invalid",
    "refused: NotFound",
    "refused: NotTogether",
    "refused: PaymentRefUsed",
    "refused: PaymentsBusy",
    "refused: PoolShort",
    "refused: SaleCancelled",
    "refused: SeatsTaken",
    "refused: VersionMismatch",
    "revived",
];

#[test]
fn no_sequence_of_commands_breaks_an_invariant() {
    let seeds = match std::env::var("LEASEHOLD_SEED") {
        Ok(seed) => vec![seed.parse().expect("LEASEHOLD_SEED is a number")],
        Err(_) => (0..CASES).collect::<Vec<u64>>(),
    };
    let is_all = seeds.len() > 1;
    let mut accepted = 0_u64;
    let mut refused = 0_u64;
    let mut forgotten = 0;
    let mut seen = BTreeSet::new();
    for seed in seeds {
        let mut commands = RandomCommands::new(seed);
        let mut state = State::new(Epoch::FIRST);
        let mut watch = Watch::default();
        let mut changes = Changes::default();
        for step in 0..COMMANDS {
            let (now, command) = commands.next_command();
            changes.clear();
            state.forget_ended(now, usize::MAX, &mut changes);
            forgotten += changes.forgotten.len();
            let outcome = state.apply(command.clone(), now, &mut changes);
            let mut broken = watch.step(&state, &command, &changes, &outcome, now);
            broken.extend(check(&state));
            assert!(broken.is_empty(), "seed {seed}, step {step}: {command:?} -> {outcome:?}: {broken:#?}");
            *if outcome.is_ok() { &mut accepted } else { &mut refused } += 1;
            seen.extend(changes.entries.iter().map(|entry| format!("{:?}", entry.kind)));
            match &outcome {
                Err(refusal) => {
                    let shown = format!("{refusal:?}");
                    seen.insert(format!("refused: {}", shown.split([' ', '(']).next().unwrap_or_default()));
                }
                Ok(Reply::Booking(booking)) if booking.revived => {
                    seen.insert("revived".to_owned());
                }
                Ok(_) => {}
            }
        }
    }
    println!("{accepted} commands accepted, {refused} refused, {forgotten} holds and payments forgotten");
    let missed: Vec<&str> = MUST_BE_SEEN.into_iter().filter(|what| !seen.contains(*what)).collect();
    assert!(missed.is_empty() || !is_all, "never tried: {missed:?}");
    assert!(forgotten > 0, "the clock must jump far enough");
    assert!(accepted > refused / 4, "the commands must do something: {accepted} of {refused}");
}

#[test]
fn a_state_put_back_from_its_parts_goes_on_in_the_same_way() {
    for seed in 0..300 {
        let mut commands = RandomCommands::new(seed);
        let mut state = State::new(Epoch::FIRST);
        let mut changes = Changes::default();
        for _ in 0..COMMANDS / 2 {
            let (now, command) = commands.next_command();
            tidy(&mut state, now, &mut changes);
            let _ = state.apply(command, now, &mut changes);
        }
        let mut copy = put_back(&state);
        for step in 0..COMMANDS / 2 {
            let (now, command) = commands.next_command();
            tidy(&mut state, now, &mut changes);
            tidy(&mut copy, now, &mut changes);
            let outcome = state.apply(command.clone(), now, &mut changes);
            let again = copy.apply(command, now, &mut changes);
            assert_eq!(outcome, again, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn everything_comes_back_when_nobody_does_anything() {
    for seed in 0..100 {
        let mut commands = RandomCommands::new(seed);
        let mut state = State::new(Epoch::FIRST);
        let mut changes = Changes::default();
        for _ in 0..COMMANDS {
            let (now, command) = commands.next_command();
            let _ = state.apply(command, now, &mut changes);
        }
        state.expire_due(Timestamp::NEVER, usize::MAX, &mut changes);
        let kept = state.holds().filter(|(_, hold)| hold.keeps_items());
        for (_, hold) in kept {
            assert!(hold.payment.as_ref().is_some_and(|payment| payment.kept), "seed {seed}: {hold:?}");
        }
        assert_eq!(check(&state), [], "seed {seed}");
    }
}

/// What an engine does before it takes commands.
fn tidy(state: &mut State, now: Timestamp, changes: &mut Changes) {
    state.expire_due(now, usize::MAX, changes);
    state.forget_ended(now, usize::MAX, changes);
}

fn put_back(state: &State) -> State {
    let mut copy = State::new(state.epoch());
    copy.load_seq(state.seq());
    for event in state.events() {
        let pools = event.pools().iter().cloned().map(|mut pool| {
            (pool.held, pool.sold, pool.blocked) = (0, 0, 0);
            pool
        });
        let mut fresh = leasehold_core::Event::new(
            event.number,
            event.id.clone(),
            event.name.clone(),
            event.layout.clone(),
            pools.collect(),
            event.policy,
            event.created_at,
        );
        fresh.load_rules(event.policy, event.state, event.version);
        for (place, seat) in event.seats().iter().enumerate() {
            fresh.load_fence(leasehold_core::SeatNo(place as u32), seat.fence);
        }
        copy.load_event(fresh);
    }
    state.holds().for_each(|(slot, hold)| copy.load_hold(slot, hold.clone()));
    state.bookings().for_each(|(slot, booking)| copy.load_booking(slot, booking.clone()));
    state.blocks().for_each(|(slot, block)| copy.load_block(slot, block.clone()));
    state.payments().for_each(|payment| copy.load_payment(payment.clone()));
    assert_eq!(copy.finish_loading().expect("a consistent state"), []);
    copy
}
