//! Single rules, one test each.

use std::sync::Arc;

use leasehold_core::invariants::check;
use leasehold_core::limits::{
    DECLINED_HOLDS_AGE_MAX, ENDED_HOLDS_AGE_MAX, EXPIRIES_PER_COMMAND_MAX, PAYMENTS_PER_HOLD_MAX,
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
