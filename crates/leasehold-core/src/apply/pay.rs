//! Paying: the hold's time stands still, until the payment succeeds, fails or is too late.

use super::wrong_state;
use crate::limits::{AFTER_DECLINE_MIN, HOLD_TTL_MIN};
use crate::{
    AtPaymentDeadline, BeginPayment, Changes, EventNo, HoldId, HoldState, Kind, Payment, PaymentPhase,
    PaymentState, Reference, Refusal, Reply, State, Timestamp, Touched,
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
        let (event, number) = (hold.event, self.next_number());
        let hold_id = hold.id;
        self.claim_payment(event, &begin.reference, hold_id, number)?;

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
        changes.touched.push(Touched::Hold(slot));
        let any = [PaymentState::Pending, PaymentState::Void];
        for state in any {
            self.settle_payment(event, begin.reference.clone(), state, PaymentState::Pending, changes);
        }
        changes.touched.push(Touched::Payment(event, begin.reference));
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
        changes.touched.push(Touched::Hold(slot));
        self.settle_payment(event, reference, PaymentState::Pending, PaymentState::Void, changes);
        self.log(changes, from, event, now, Kind::PaymentFailed);
        Ok(self.hold_reply(slot))
    }

    /// Makes the reference this hold's, unless it is another's.
    pub(super) fn claim_payment(
        &mut self,
        event: EventNo,
        reference: &Reference,
        hold: HoldId,
        number: u64,
    ) -> Result<PaymentState, Refusal> {
        let known = self.payments.entry((event, reference.clone())).or_insert_with(|| Payment {
            number,
            event,
            reference: reference.clone(),
            hold,
            state: PaymentState::Void,
        });
        if known.hold == hold { Ok(known.state) } else { Err(Refusal::PaymentRefUsed) }
    }

    /// Moves a payment from one state to another; does nothing when it is in a third one.
    pub(super) fn settle_payment(
        &mut self,
        event: EventNo,
        reference: Reference,
        from: PaymentState,
        to: PaymentState,
        changes: &mut Changes,
    ) {
        let key = (event, reference);
        if let Some(payment) = self.payments.get_mut(&key)
            && payment.state == from
            && from != to
        {
            payment.state = to;
            changes.touched.push(Touched::Payment(key.0, key.1));
        }
    }
}
