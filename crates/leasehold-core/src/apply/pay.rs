//! Paying: the hold's time stands still, until the payment succeeds, fails or is too late.

use super::wrong_state;
use crate::limits::{AFTER_DECLINE_MIN, HOLD_TTL_MIN, PAYMENTS_PER_HOLD_MAX};
use crate::{
    AtPaymentDeadline, BeginPayment, Changes, EventNo, EventState, Hold, HoldId, HoldState, Kind, Payment,
    PaymentPhase, PaymentState, Reference, Refusal, Reply, State, Timestamp, Touched,
};

impl State {
    pub(super) fn begin_payment(
        &mut self,
        begin: BeginPayment,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let slot = self.current_hold(begin.hold, now, changes)?;
        let hold = self.hold_at(slot).expect("just found");
        let policy = self.event(hold.event).expect("a hold has an event").policy;
        let same = hold.payment.as_ref().is_some_and(|payment| payment.reference == begin.reference);
        match hold.state {
            HoldState::Held => {}
            HoldState::Confirming if same => return Ok(self.hold_reply(slot)),
            state => return Err(wrong_state(state)),
        }
        let max_wait = begin.max_wait.unwrap_or(policy.payment_max);
        if max_wait < HOLD_TTL_MIN || max_wait > policy.payment_max {
            return Err(Refusal::Invalid("max_wait_ms is out of range"));
        }
        let event = hold.event;
        if self.payment_state(hold, &begin.reference)?.is_none() && !self.may_have_more_payments(hold) {
            return Err(Refusal::PaymentCap);
        }
        self.require_place_to_pay(event, now, changes)?;

        let from = changes.touched.len();
        self.unschedule(slot);
        let hold = self.hold_mut(slot);
        hold.state = HoldState::Confirming;
        hold.version += 1;
        hold.payment = Some(Box::new(PaymentPhase {
            reference: begin.reference.clone(),
            deadline: now.after(max_wait).min(hold.life_end),
            remaining: hold.expires_at.since(now),
            kept: policy.at_payment_deadline == AtPaymentDeadline::Keep,
        }));
        self.schedule(slot);
        self.event_mut(event).count_payment_begun();
        changes.touched.push(Touched::Hold(slot));
        self.set_payment(event, begin.hold, begin.reference, PaymentState::Pending, changes);
        self.log(changes, from, event, now, Kind::PaymentBegun);
        Ok(self.hold_reply(slot))
    }

    pub(super) fn payment_failed(
        &mut self,
        hold: HoldId,
        reference: Reference,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let slot = self.current_hold(hold, now, changes)?;
        let hold = self.hold_at(slot).expect("just found");
        let payment = hold.payment.as_ref().filter(|payment| payment.reference == reference);
        let Some(payment) = payment else { return Err(wrong_state(hold.state)) };
        match hold.state {
            HoldState::Confirming => {}
            // Told before: the hold is back already, or ended.
            HoldState::Held => return Ok(self.hold_reply(slot)),
            state => return Err(wrong_state(state)),
        }
        let event = hold.event;
        if self.event(event).is_some_and(|event| event.state == EventState::Closed) {
            // Closing took away the holds that nobody was paying for: this is one more of them.
            self.end_hold(slot, HoldState::Revoked, Kind::HoldRevoked, now, changes);
            return Ok(self.hold_reply(slot));
        }
        let expires_at = now.after(payment.remaining.max(AFTER_DECLINE_MIN)).min(hold.life_end);
        if expires_at <= now {
            self.end_hold(slot, HoldState::Expired, Kind::HoldExpired, now, changes);
            return Ok(self.hold_reply(slot));
        }
        let from = changes.touched.len();
        self.unschedule(slot);
        let hold = self.hold_mut(slot);
        hold.state = HoldState::Held;
        hold.version += 1;
        hold.expires_at = expires_at;
        self.schedule(slot);
        self.event_mut(event).count_payment_over();
        changes.touched.push(Touched::Hold(slot));
        self.void_payment(event, reference, changes);
        self.log(changes, from, event, now, Kind::PaymentFailed);
        Ok(self.hold_reply(slot))
    }

    /// What became of this payment of a hold; none when it is new. Refuses another hold's.
    pub(super) fn payment_state(
        &self,
        hold: &Hold,
        reference: &Reference,
    ) -> Result<Option<PaymentState>, Refusal> {
        match self.payment(hold.event, reference) {
            None => Ok(None),
            Some(known) if known.hold == hold.id => Ok(Some(known.state)),
            Some(_) => Err(Refusal::PaymentRefUsed),
        }
    }

    pub(super) fn may_have_more_payments(&self, hold: &Hold) -> bool {
        self.payments.count_of(hold.id) < PAYMENTS_PER_HOLD_MAX
    }

    /// Notes what became of a payment of this hold, which may be new.
    pub(super) fn set_payment(
        &mut self,
        event: EventNo,
        hold: HoldId,
        reference: Reference,
        state: PaymentState,
        changes: &mut Changes,
    ) {
        match self.payment(event, &reference) {
            Some(known) if known.hold == hold => self.payments.set_state(event, &reference, state),
            Some(_) => unreachable!("another hold's payment was refused before"),
            None => {
                let number = self.next_number();
                self.payments.put(Payment { number, event, reference: reference.clone(), hold, state });
            }
        }
        changes.touched.push(Touched::Payment(event, reference));
    }

    /// Notes that nothing came of a payment that was in progress.
    pub(super) fn void_payment(&mut self, event: EventNo, reference: Reference, changes: &mut Changes) {
        if self.payment(event, &reference).is_some_and(|known| known.state == PaymentState::Pending) {
            self.payments.set_state(event, &reference, PaymentState::Void);
            changes.touched.push(Touched::Payment(event, reference));
        }
    }
}
