//! Single rules, one test each.

use std::sync::Arc;

use leasehold_core::invariants::check;
use leasehold_core::limits::{
    AFTER_DECLINE_MIN, DECLINED_HOLDS_AGE_MAX, ENDED_HOLDS_AGE_MAX, EXPIRIES_PER_COMMAND_MAX,
    PAYMENTS_PER_HOLD_MAX,
};
use leasehold_core::*;

/// One event with three seats and a pool of five, and a clock that the test moves.
struct Stage {
    state: State,
    changes: Changes,
    now: Timestamp,
    ids: u128,
}

impl Stage {
    fn new(policy: Policy) -> Self {
        Self::with_stock(policy, 3, 5)
    }

    fn with_stock(policy: Policy, seats: u32, units: u32) -> Self {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let mut stage = Self { state: State::new(Epoch::FIRST), changes: Changes::default(), now, ids: 0 };
        stage.apply(Command::CreateEvent(CreateEvent {
            id: Name::parse("gala").unwrap(),
            name: Text::parse("Gala").unwrap(),
            layout: Arc::new(Layout::grid(&[(Name::parse("A").unwrap(), 1, seats)]).unwrap()),
            pools: vec![(Name::parse("floor").unwrap(), units)],
            policy,
        }));
        stage
    }

    fn try_apply(&mut self, command: Command) -> Result<Reply, Refusal> {
        self.changes.clear();
        let outcome = self.state.apply(command, self.now, &mut self.changes);
        assert_eq!(check(&self.state), []);
        outcome
    }

    fn apply(&mut self, command: Command) -> Reply {
        self.try_apply(command).unwrap()
    }

    fn wait(&mut self, span: Millis) {
        self.now = self.now.after(span);
    }

    fn id(&mut self) -> u128 {
        self.ids += 1;
        self.ids
    }

    fn hold(&mut self, item: ItemRequest) -> HoldId {
        let id = HoldId::from_raw(self.id()).unwrap();
        self.apply(Command::CreateHold(CreateHold {
            event: EventNo(0),
            id,
            items: vec![item],
            holder: None,
            ttl: None,
        }));
        id
    }

    fn hold_for(&mut self, holder: &str, items: &[ItemRequest]) -> Result<Hold, Refusal> {
        let id = HoldId::from_raw(self.id()).unwrap();
        let (event, items, holder) = (EventNo(0), items.to_vec(), Some(payment(holder)));
        self.try_apply(Command::CreateHold(CreateHold { event, id, items, holder, ttl: None })).map(held)
    }

    fn amend(&mut self, hold: HoldId, add: &[ItemRequest], remove: &[ItemRequest]) -> Result<Hold, Refusal> {
        let (add, remove) = (add.to_vec(), remove.to_vec());
        let amend = AmendHold { hold, extend: None, add, remove, version: None };
        self.try_apply(Command::AmendHold(amend)).map(held)
    }

    fn confirm_part(&mut self, hold: HoldId, items: &[ItemRequest]) -> Result<Booking, Refusal> {
        let (booking, items) = (BookingId::from_raw(self.id()).unwrap(), Some(items.to_vec()));
        let confirm = ConfirmHold { hold, booking, payment_ref: None, order_ref: None, items };
        self.try_apply(Command::ConfirmHold(confirm)).map(booked)
    }

    fn update(&mut self, patch: EventPatch) -> Result<Reply, Refusal> {
        self.try_apply(Command::UpdateEvent(UpdateEvent { event: EventNo(0), patch }))
    }

    fn block(&mut self, items: &[ItemRequest]) -> Result<Reply, Refusal> {
        let (id, items) = (BlockId::from_raw(self.id()).unwrap(), items.to_vec());
        self.try_apply(Command::CreateBlock(CreateBlock { event: EventNo(0), id, items, reason: None }))
    }

    fn event(&self) -> &Event {
        self.state.event(EventNo(0)).unwrap()
    }

    /// Free, held, sold and blocked seats, and the same of the pool's units.
    fn counts(&self) -> ([u32; 4], [u32; 4]) {
        let (seats, pool) = (self.event().counts(), &self.event().pools()[0]);
        let seats = [seats.free, seats.held, seats.sold, seats.blocked];
        (seats, [pool.free(), pool.held, pool.sold, pool.blocked])
    }

    fn begin(&mut self, hold: HoldId, reference: &str) -> Result<Reply, Refusal> {
        let reference = payment(reference);
        self.try_apply(Command::BeginPayment(BeginPayment { hold, reference, max_wait: None }))
    }

    fn decline(&mut self, hold: HoldId, reference: &str) {
        self.begin(hold, reference).unwrap();
        self.apply(Command::PaymentFailed(hold, payment(reference)));
    }

    fn confirm(&mut self, hold: HoldId, reference: &str) -> Result<Reply, Refusal> {
        let booking = BookingId::from_raw(self.id()).unwrap();
        let payment_ref = Some(payment(reference));
        self.try_apply(Command::ConfirmHold(ConfirmHold {
            hold,
            booking,
            payment_ref,
            order_ref: None,
            items: None,
        }))
    }

    fn forget(&mut self) {
        self.changes.clear();
        self.state.forget_ended(self.now, usize::MAX, &mut self.changes);
        assert_eq!(check(&self.state), []);
    }
}

fn payment(reference: &str) -> Reference {
    Reference::parse(reference).unwrap()
}

fn held(reply: Reply) -> Hold {
    let Reply::Hold(hold) = reply else { panic!("not a hold: {reply:?}") };
    hold
}

fn booked(reply: Reply) -> Booking {
    let Reply::Booking(booking) = reply else { panic!("not a booking: {reply:?}") };
    booking
}

fn seat(number: u32) -> ItemRequest {
    ItemRequest::Seat(SeatNo(number))
}

fn units(quantity: u32) -> ItemRequest {
    ItemRequest::Pool(PoolNo(0), quantity)
}

const SEAT: ItemRequest = ItemRequest::Seat(SeatNo(0));

#[test]
fn a_hold_has_a_bounded_number_of_payments() {
    let mut stage = Stage::new(Policy::default());
    let hold = stage.hold(SEAT);
    for number in 0..PAYMENTS_PER_HOLD_MAX {
        stage.decline(hold, &format!("pay-{number}"));
    }
    assert_eq!(stage.begin(hold, "one-more").unwrap_err(), Refusal::PaymentCap);
    assert!(stage.begin(hold, "pay-3").is_ok(), "an earlier one may be tried again");
    stage.apply(Command::PaymentFailed(hold, payment("pay-3")));
    assert!(
        matches!(stage.confirm(hold, "paid"), Ok(Reply::Booking(_))),
        "money that came is a sale all the same"
    );
}

#[test]
fn a_place_to_pay_is_free_as_soon_as_a_payment_has_ended_however_it_did() {
    let policy = Policy { payments_in_flight_max: 1, ..Policy::default() };
    let mut stage = Stage::with_stock(policy, 9, 9);
    let holds: Vec<HoldId> = (0..4).map(|number| stage.hold(seat(number))).collect();
    let busy = Err(Refusal::PaymentsBusy);
    assert!(stage.begin(holds[0], "pay-0").is_ok());
    assert!(stage.begin(holds[0], "pay-0").is_ok(), "the same once more");
    assert_eq!(stage.begin(holds[1], "pay-1"), busy);
    stage.apply(Command::PaymentFailed(holds[0], payment("pay-0")));
    assert!(stage.begin(holds[1], "pay-1").is_ok(), "declined");
    assert_eq!(stage.begin(holds[2], "pay-2"), busy);
    stage.confirm(holds[1], "pay-1").unwrap();
    assert!(stage.begin(holds[2], "pay-2").is_ok(), "sold");
    assert_eq!(stage.begin(holds[3], "pay-3"), busy);
    stage.apply(Command::RevokeHold(holds[2], None));
    assert!(stage.begin(holds[3], "pay-3").is_ok(), "revoked");
    stage.wait(policy.payment_max);
    let last = stage.hold(seat(8));
    assert!(stage.begin(last, "pay-8").is_ok(), "too late, and nobody had noticed");
    assert_eq!(stage.event().payments_in_flight(), 1);
}

#[test]
fn a_late_payment_too_many_must_be_given_back_whatever_is_free() {
    let mut stage = Stage::new(Policy::default());
    let hold = stage.hold(SEAT);
    for number in 0..PAYMENTS_PER_HOLD_MAX {
        stage.decline(hold, &format!("pay-{number}"));
    }
    stage.apply(Command::ReleaseHold(hold));
    let entries = stage.state.seq();
    for _ in 0..2 {
        assert!(matches!(stage.confirm(hold, "one-more"), Ok(Reply::RefundDue(..))));
    }
    assert_eq!((stage.state.seq(), stage.state.payments().count()), (entries, PAYMENTS_PER_HOLD_MAX));
    assert!(matches!(stage.confirm(hold, "pay-7"), Ok(Reply::Booking(_))), "one that it had may come late");
}

#[test]
fn a_hold_with_void_payments_only_is_forgotten_with_them() {
    let mut stage = Stage::new(Policy::default());
    let (plain, declined) = (stage.hold(SEAT), stage.hold(ItemRequest::Seat(SeatNo(1))));
    stage.decline(declined, "pay-1");
    stage.decline(declined, "pay-2");
    for hold in [plain, declined] {
        stage.apply(Command::ReleaseHold(hold));
    }
    stage.wait(ENDED_HOLDS_AGE_MAX);
    stage.forget();
    assert!(stage.state.hold(plain).is_none() && stage.state.hold(declined).is_some());
    stage.wait(DECLINED_HOLDS_AGE_MAX);
    stage.forget();
    assert!(stage.state.hold(declined).is_none());
    assert_eq!(stage.state.payments().count(), 0);
    assert_eq!(stage.changes.forgotten.len(), 3, "{:?}", stage.changes.forgotten);
}

#[test]
fn a_hold_whose_money_must_be_given_back_is_never_forgotten() {
    let mut stage = Stage::new(Policy { accept_late_payment: false, ..Policy::default() });
    let (plain, declined) = (stage.hold(SEAT), stage.hold(ItemRequest::Seat(SeatNo(1))));
    stage.decline(declined, "pay-1");
    for (hold, reference) in [(plain, "late-1"), (declined, "late-2")] {
        stage.apply(Command::ReleaseHold(hold));
        assert!(matches!(stage.confirm(hold, reference), Ok(Reply::RefundDue(..))));
    }
    stage.wait(Millis(2 * DECLINED_HOLDS_AGE_MAX.0));
    stage.forget();
    assert!(stage.state.hold(plain).is_some() && stage.state.hold(declined).is_some());
    assert_eq!(stage.state.payments().count(), 3);
}

#[test]
fn a_void_payment_that_outlived_its_hold_on_disk_is_dropped_when_it_is_loaded() {
    let lost = |state| Payment {
        number: 1,
        event: EventNo(0),
        reference: payment("pay-1"),
        hold: HoldId::from_raw(7).unwrap(),
        state,
    };
    let mut stage = Stage::new(Policy::default());
    stage.state.load_payment(lost(PaymentState::Void));
    let dropped = stage.state.finish_loading().unwrap();
    assert_eq!(dropped, [Touched::Payment(EventNo(0), payment("pay-1"))]);
    assert_eq!(check(&stage.state), []);
    stage.state.load_payment(lost(PaymentState::RefundDue));
    assert!(stage.state.finish_loading().is_err(), "one that has to do with money is damage");
}

/// Many holds that are over, on everything there is.
fn storm(holds: u32) -> Stage {
    let policy = Policy { hold_ttl: Millis(1_000), ..Policy::default() };
    let mut stage = Stage::with_stock(policy, holds, holds);
    for seat in 0..holds {
        stage.hold(ItemRequest::Seat(SeatNo(seat)));
        stage.hold(ItemRequest::Pool(PoolNo(0), 1));
    }
    stage.wait(Millis(1_000));
    stage
}

#[test]
fn one_command_ends_few_holds_and_never_says_sold_out_while_more_are_over() {
    for item in [ItemRequest::Pool(PoolNo(0), 200), ItemRequest::Best { count: 90, section: None }] {
        let mut stage = storm(200);
        let mut rounds = 0;
        loop {
            let id = HoldId::from_raw(stage.id()).unwrap();
            let (event, items) = (EventNo(0), vec![item]);
            let asked = Command::CreateHold(CreateHold { event, id, items, holder: None, ttl: None });
            let outcome = stage.try_apply(asked);
            assert!(stage.changes.entries.len() <= EXPIRIES_PER_COMMAND_MAX + 1);
            match outcome {
                Err(Refusal::NotYet) => rounds += 1,
                other => break assert!(other.is_ok(), "{other:?}"),
            }
        }
        assert!(rounds > 1, "{item:?} waited {rounds} rounds");
    }
}

#[test]
fn a_late_payment_is_not_given_back_while_what_it_paid_for_may_come_back() {
    let mut stage = Stage::with_stock(Policy { hold_ttl: Millis(1_000), ..Policy::default() }, 1, 100);
    let late = stage.hold(ItemRequest::Pool(PoolNo(0), 100));
    stage.apply(Command::ReleaseHold(late));
    for _ in 0..100 {
        stage.hold(ItemRequest::Pool(PoolNo(0), 1));
    }
    stage.wait(Millis(1_000));
    assert_eq!(stage.confirm(late, "pay-1").unwrap_err(), Refusal::NotYet);
    assert_eq!(stage.state.payments().count(), 0);
    assert!(matches!(stage.confirm(late, "pay-1"), Ok(Reply::Booking(_))));
}

#[test]
fn an_extension_that_changes_nothing_does_not_count() {
    let policy = Policy { hold_ttl: Millis(60_000), extends_max: 1, ..Policy::default() };
    let mut stage = Stage::new(policy);
    let hold = stage.hold(SEAT);
    let extend = |span, add: &[ItemRequest]| {
        let (extend, add) = (Some(Millis(span)), add.to_vec());
        Command::AmendHold(AmendHold { hold, extend, add, remove: Vec::new(), version: None })
    };
    let Reply::Hold(same) = stage.apply(extend(1_000, &[])) else { panic!("a hold was changed") };
    assert_eq!((same.version, same.extends, stage.changes.entries.len()), (1, 0, 0));
    let Reply::Hold(more) = stage.apply(extend(1_000, &[ItemRequest::Seat(SeatNo(1))])) else {
        panic!("a hold was changed")
    };
    assert_eq!((more.version, more.extends, more.expires_at), (2, 0, same.expires_at));
    let Reply::Hold(longer) = stage.apply(extend(120_000, &[])) else { panic!("a hold was changed") };
    assert_eq!((longer.extends, longer.expires_at), (1, stage.now.after(Millis(120_000))));
    assert_eq!(stage.try_apply(extend(180_000, &[])).unwrap_err(), Refusal::ExtendCap);
}

#[test]
fn a_part_of_a_hold_can_be_sold_and_the_rest_is_free_at_once() {
    let mut stage = Stage::new(Policy::default());
    let hold = stage.hold_for("ada", &[seat(0), seat(1), units(3)]).unwrap();
    for not_held in [&[seat(2)][..], &[units(4)], &[seat(0), seat(0)], &[]] {
        assert!(matches!(stage.confirm_part(hold.id, not_held), Err(Refusal::Invalid(_))), "{not_held:?}");
    }
    assert_eq!(stage.counts(), ([1, 2, 0, 0], [2, 3, 0, 0]));
    let booking = stage.confirm_part(hold.id, &[seat(1), units(1)]).unwrap();
    let sold = Item::Pool { pool: PoolNo(0), quantity: 1 };
    assert_eq!(*booking.items, [hold.items[1], sold], "the seat under the fence it was held with");
    assert_eq!(stage.counts(), ([2, 0, 1, 0], [4, 0, 1, 0]));
    assert!(stage.hold_for("bob", &[seat(0), units(4)]).is_ok());
    assert_eq!(stage.hold_for("bob", &[seat(1)]).unwrap_err(), Refusal::SeatsTaken(vec![SeatNo(1)]));
}

#[test]
fn a_closed_event_takes_holds_away_and_lets_payments_finish() {
    let mut stage = Stage::new(Policy::default());
    let (unpaid, paying) = (stage.hold(seat(0)), stage.hold(seat(1)));
    stage.begin(paying, "pay-1").unwrap();
    stage.update(EventPatch { open: Some(false), ..EventPatch::default() }).unwrap();
    assert_eq!(stage.state.hold(unpaid).unwrap().state, HoldState::Revoked);
    assert_eq!(stage.counts().0, [2, 1, 0, 0]);
    assert_eq!(stage.hold_for("bob", &[seat(0)]).unwrap_err(), Refusal::EventClosed);
    assert!(matches!(stage.confirm(unpaid, "late"), Ok(Reply::RefundDue(..))), "nothing new is sold");
    assert_eq!(
        *booked(stage.confirm(paying, "pay-1").unwrap()).items,
        *stage.state.hold(paying).unwrap().items
    );
    stage.update(EventPatch { open: Some(true), ..EventPatch::default() }).unwrap();
    assert!(stage.hold_for("bob", &[seat(0)]).is_ok());
}

#[test]
fn a_closed_event_sells_nothing_after_a_declined_payment() {
    let mut stage = Stage::new(Policy::default());
    let (declined, kept) = (stage.hold(seat(0)), stage.hold(seat(1)));
    stage.begin(declined, "pay-1").unwrap();
    stage.begin(kept, "pay-2").unwrap();
    stage.update(EventPatch { open: Some(false), ..EventPatch::default() }).unwrap();
    let over = held(stage.apply(Command::PaymentFailed(declined, payment("pay-1"))));
    assert_eq!(over.state, HoldState::Revoked, "nobody is paying for it any more");
    assert_eq!(stage.counts().0, [2, 1, 0, 0]);
    assert_eq!(stage.begin(declined, "pay-3").unwrap_err(), Refusal::HoldOver(HoldState::Revoked));
    assert!(matches!(stage.confirm(declined, "pay-3"), Ok(Reply::RefundDue(..))));
    assert!(matches!(stage.confirm(kept, "pay-2"), Ok(Reply::Booking(_))), "that payment may finish");
}

#[test]
fn a_full_hold_takes_more_units_of_a_pool_that_it_has_and_nothing_else() {
    let mut stage = Stage::with_stock(Policy::default(), 100, 5);
    let mut items: Vec<ItemRequest> = (0..99).map(|seat| ItemRequest::Seat(SeatNo(seat))).collect();
    items.push(units(1));
    let hold = stage.hold_for("ada", &items).unwrap();
    assert_eq!(stage.amend(hold.id, &[units(2)], &[]).unwrap().items.len(), 100);
    let more = stage.amend(hold.id, &[ItemRequest::Seat(SeatNo(99))], &[]);
    assert_eq!(more.unwrap_err(), Refusal::Invalid("there are too many items"));
    assert_eq!(stage.counts(), ([1, 99, 0, 0], [2, 3, 0, 0]));
}

#[test]
fn an_amended_hold_gives_back_and_takes_in_one_step() {
    let mut stage = Stage::new(Policy::default());
    let hold = stage.hold_for("ada", &[seat(0), seat(1), units(3)]).unwrap();
    stage.hold_for("bob", &[units(2)]).unwrap();
    let smaller = stage.amend(hold.id, &[], &[seat(1), units(2)]).unwrap();
    assert_eq!(*smaller.items, [hold.items[0], Item::Pool { pool: PoolNo(0), quantity: 1 }]);
    assert_eq!(stage.counts(), ([2, 1, 0, 0], [2, 3, 0, 0]));
    let swapped = stage.amend(hold.id, &[seat(2), units(2)], &[seat(0)]).unwrap();
    assert_eq!((swapped.version, stage.counts()), (3, ([2, 1, 0, 0], [0, 5, 0, 0])));
    assert_eq!(stage.hold_for("bob", &[seat(2)]).unwrap_err(), Refusal::SeatsTaken(vec![SeatNo(2)]));

    // What cannot be had as a whole changes nothing.
    let refused = stage.amend(hold.id, &[seat(0), units(1)], &[seat(2)]).unwrap_err();
    assert_eq!(refused, Refusal::PoolShort { pool: PoolNo(0), available: 0, returning: 5 });
    for invalid in
        [stage.amend(hold.id, &[], &[seat(2), units(3)]), stage.amend(hold.id, &[seat(2)], &[seat(2)])]
    {
        assert!(matches!(invalid, Err(Refusal::Invalid(_))), "{invalid:?}");
    }
    assert_eq!(stage.state.hold(hold.id), Some(&swapped));
    assert_eq!(stage.counts(), ([2, 1, 0, 0], [0, 5, 0, 0]));
}

#[test]
fn no_extension_goes_past_the_hard_deadline_and_at_its_end_a_hold_is_over() {
    let policy = Policy { hold_ttl: Millis(60_000), hold_total_max: Millis(100_000), ..Policy::default() };
    let mut stage = Stage::new(policy);
    let hold = stage.hold(SEAT);
    let deadline = stage.now.after(Millis(100_000));
    let extend =
        AmendHold { hold, extend: Some(Millis(90_000)), add: Vec::new(), remove: Vec::new(), version: None };
    stage.wait(Millis(50_000));
    assert_eq!(held(stage.apply(Command::AmendHold(extend.clone()))).expires_at, deadline);
    assert_eq!(stage.try_apply(Command::AmendHold(extend)).unwrap_err(), Refusal::ExtendCap);
    stage.wait(Millis(49_999));
    assert_eq!(stage.hold_for("bob", &[SEAT]).unwrap_err(), Refusal::SeatsTaken(vec![SeatNo(0)]));
    stage.wait(Millis(1));
    let seen = stage.state.hold(hold).unwrap().clone();
    assert_eq!((seen.state, seen.clone().at(stage.now).state), (HoldState::Held, HoldState::Expired));
    assert!(stage.hold_for("bob", &[SEAT]).is_ok(), "the end is exclusive");
    assert_eq!(seen.at(stage.now), *stage.state.hold(hold).unwrap(), "seen as it is noted afterwards");
    assert_eq!(stage.state.hold(hold).unwrap().state, HoldState::Expired);
}

#[test]
fn a_declined_payment_leaves_the_rest_of_the_time_and_at_least_a_minute() {
    let mut stage = Stage::new(Policy { hold_ttl: Millis(200_000), ..Policy::default() });
    let hold = stage.hold(SEAT);
    for (waited, left) in [(80_000, 120_000), (115_000, AFTER_DECLINE_MIN.0)] {
        stage.wait(Millis(waited));
        stage.begin(hold, "pay-1").unwrap();
        // The hold's time stands still meanwhile.
        stage.wait(Millis(600_000));
        let back = held(stage.apply(Command::PaymentFailed(hold, payment("pay-1"))));
        assert_eq!((back.state, back.expires_at), (HoldState::Held, stage.now.after(Millis(left))));
    }
}

#[test]
fn a_cancelled_sale_voids_its_fence_before_anybody_has_the_seat_again() {
    let mut stage = Stage::new(Policy::default());
    let hold = stage.hold(SEAT);
    let booking = booked(stage.confirm(hold, "pay-1").unwrap());
    let Item::Seat { fence: sold, .. } = booking.items[0] else { panic!("a seat") };
    assert_eq!(stage.event().seat(SeatNo(0)).fence, sold);
    stage.apply(Command::CancelBooking(CancelBooking { booking: booking.id }));
    let Seat { fence: void, owner } = stage.event().seat(SeatNo(0));
    assert!(owner == Owner::Free && sold < void, "{sold:?} {void:?}");
    let Item::Seat { fence: next, .. } = stage.hold_for("bob", &[SEAT]).unwrap().items[0] else {
        panic!("a seat")
    };
    assert!(void < next, "{void:?} {next:?}");
}

#[test]
fn a_cancelled_sale_is_not_told_again_as_one_that_was_made() {
    let mut stage = Stage::new(Policy::default());
    let hold = stage.hold(SEAT);
    let booking = booked(stage.confirm(hold, "pay-1").unwrap());
    assert_eq!(booked(stage.confirm(hold, "pay-1").unwrap()), booking, "the same payment, the same sale");
    stage.apply(Command::CancelBooking(CancelBooking { booking: booking.id }));
    assert_eq!(stage.confirm(hold, "pay-1").unwrap_err(), Refusal::SaleCancelled(booking.id));
    assert!(matches!(stage.confirm(hold, "pay-2"), Ok(Reply::RefundDue(..))), "another one is given back");
    assert_eq!(stage.counts().0, [3, 0, 0, 0]);
}

#[test]
fn a_block_takes_only_what_is_free_and_keeps_it_from_everybody() {
    let mut stage = Stage::new(Policy::default());
    let sold = stage.hold(seat(0));
    stage.confirm(sold, "pay-1").unwrap();
    stage.hold(seat(1));
    stage.hold(units(3));
    let taken = stage.block(&[seat(0), seat(1), seat(2)]).unwrap_err();
    assert_eq!(taken, Refusal::SeatsTaken(vec![SeatNo(0), SeatNo(1)]));
    let short = stage.block(&[seat(2), units(3)]).unwrap_err();
    assert_eq!(short, Refusal::PoolShort { pool: PoolNo(0), available: 2, returning: 3 });
    let Reply::Block(block) = stage.block(&[seat(2), units(2)]).unwrap() else { panic!("a block") };
    assert_eq!(stage.counts(), ([0, 1, 1, 1], [0, 3, 0, 2]));
    assert_eq!(stage.hold_for("bob", &[seat(2)]).unwrap_err(), Refusal::SeatsTaken(vec![SeatNo(2)]));
    assert!(matches!(stage.hold_for("bob", &[units(1)]), Err(Refusal::PoolShort { available: 0, .. })));
    stage.apply(Command::RemoveBlock(EventNo(0), block.id));
    assert!(stage.hold_for("bob", &[seat(2), units(2)]).is_ok());
}

#[test]
fn a_capacity_grows_and_falls_to_what_is_in_use() {
    let mut stage = Stage::new(Policy::default());
    let capacity = |capacity| EventPatch { capacities: vec![(PoolNo(0), capacity)], ..EventPatch::default() };
    stage.hold(units(5));
    stage.update(capacity(7)).unwrap();
    stage.hold(units(1));
    let refused = stage.update(capacity(5)).unwrap_err();
    assert_eq!(refused, Refusal::CapacityInUse { pool: PoolNo(0), in_use: 6 });
    stage.update(capacity(6)).unwrap();
    assert!(matches!(stage.hold_for("bob", &[units(1)]), Err(Refusal::PoolShort { available: 0, .. })));
}

#[test]
fn holds_that_are_over_are_in_the_way_of_no_smaller_capacity() {
    let mut stage = Stage::new(Policy::default());
    stage.hold(units(4));
    let smaller = || EventPatch { capacities: vec![(PoolNo(0), 3)], ..EventPatch::default() };
    let refused = stage.update(smaller()).unwrap_err();
    assert_eq!(refused, Refusal::CapacityInUse { pool: PoolNo(0), in_use: 4 });
    stage.wait(Policy::default().hold_ttl);
    stage.update(smaller()).unwrap();
}

#[test]
fn a_holder_has_no_more_than_the_limit_held_and_sold_together() {
    let mut stage = Stage::with_stock(Policy { units_per_holder_max: 3, ..Policy::default() }, 9, 9);
    let limit = |has| Refusal::HolderLimit { has, limit: 3 };
    assert_eq!(stage.hold_for("ada", &[seat(0), units(3)]).unwrap_err(), limit(0));
    let first = stage.hold_for("ada", &[seat(0), units(1)]).unwrap();
    assert_eq!(stage.hold_for("ada", &[seat(1), seat(2)]).unwrap_err(), limit(2), "over two holds");
    let second = stage.hold_for("ada", &[seat(1)]).unwrap();
    assert!(stage.hold_for("bob", &[units(3)]).is_ok(), "everybody has a limit of their own");

    assert_eq!(stage.amend(second.id, &[units(1)], &[]).unwrap_err(), limit(3));
    assert_eq!(stage.amend(second.id, &[seat(2), units(1)], &[seat(1)]).unwrap_err(), limit(3));
    assert!(stage.amend(second.id, &[seat(2)], &[seat(1)]).is_ok(), "one for another");

    let booking = booked(stage.confirm(first.id, "pay-1").unwrap());
    assert_eq!(stage.hold_for("ada", &[units(1)]).unwrap_err(), limit(3), "what is sold counts too");
    stage.apply(Command::ReleaseHold(second.id));
    assert_eq!(stage.hold_for("ada", &[units(2)]).unwrap_err(), limit(2));
    stage.apply(Command::CancelBooking(CancelBooking { booking: booking.id }));
    assert!(stage.hold_for("ada", &[units(3)]).is_ok(), "what was given back and cancelled does not count");
}

#[test]
fn nobody_is_told_of_a_limit_while_holds_of_theirs_are_over() {
    let policy = Policy { units_per_holder_max: 3, ..Policy::default() };
    let mut stage = Stage::with_stock(policy, 9, 900);
    stage.hold_for("ada", &[seat(0), units(2)]).unwrap();
    stage.wait(policy.hold_ttl);
    let again = stage.hold_for("ada", &[seat(1), units(2)]).unwrap();
    assert_eq!(again.items.len(), 2, "what she had is over");
    stage.wait(policy.hold_ttl);
    let other = stage.hold_for("bob", &[seat(2)]).unwrap();
    stage.wait(Millis(1));
    stage.hold_for("bob", &[units(1)]).unwrap();
    stage.wait(policy.hold_ttl);
    assert!(stage.hold_for("bob", &[units(3)]).is_ok(), "also when seats are not in the way");
    assert_eq!(stage.state.hold(other.id).unwrap().state, HoldState::Expired);

    // With more over than one command ends, the answer is not known yet, except where it cannot change.
    let storm = EXPIRIES_PER_COMMAND_MAX as u32 + 1;
    for number in 0..storm {
        stage.hold_for(&format!("buyer-{number}"), &[units(1)]).unwrap();
    }
    stage.wait(Millis(1));
    let mine = stage.hold_for("cleo", &[units(3)]).unwrap();
    stage.wait(policy.hold_ttl);
    let refused = stage.hold_for("cleo", &[units(4)]).unwrap_err();
    assert_eq!(refused, Refusal::HolderLimit { has: 3, limit: 3 }, "nobody may have four");
    assert_eq!(stage.hold_for("cleo", &[units(1)]).unwrap_err(), Refusal::NotYet);
    assert_eq!(stage.state.hold(mine.id).unwrap().state, HoldState::Held, "those before it were ended first");
    assert!(stage.hold_for("cleo", &[units(1)]).is_ok());
}
