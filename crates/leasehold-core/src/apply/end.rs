//! The ways a hold ends without a sale: given back, taken away, run out.

use super::wrong_state;
use crate::hold::units;
use crate::{
    Changes, HoldId, HoldSlot, HoldState, Kind, Owner, Refusal, Reply, State, Text, Timestamp, Touched,
};

impl State {
    /// Ends up to `limit` holds whose time has run out, soonest first, and says how many.
    ///
    /// No answer depends on this being called: a hold that is over is over. It only tidies.
    pub fn expire_due(&mut self, now: Timestamp, limit: usize, changes: &mut Changes) -> usize {
        let mut count = 0;
        while count < limit {
            let Some(&(at, slot)) = self.due_holds().first() else { break };
            if now < at {
                break;
            }
            self.expire_if_due(slot, now, changes);
            count += 1;
        }
        count
    }

    /// Ends a hold if its time has run out: the whole hold, never one seat of it.
    pub(super) fn expire_if_due(&mut self, slot: HoldSlot, now: Timestamp, changes: &mut Changes) {
        let hold = self.hold_at(slot).expect("the slot was found in this command");
        if hold.keeps_items() && !hold.is_live(now) {
            self.end_hold(slot, HoldState::Expired, Kind::HoldExpired, now, changes);
        }
    }

    pub(super) fn release_hold(
        &mut self,
        hold: HoldId,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let slot = self.current_hold(hold, now, changes)?;
        match self.hold_at(slot).expect("just found").state {
            HoldState::Held => self.end_hold(slot, HoldState::Released, Kind::HoldReleased, now, changes),
            // Giving back what is gone is no mistake: the caller wanted it gone.
            HoldState::Released | HoldState::Expired | HoldState::Revoked => {}
            state @ (HoldState::Confirming | HoldState::Confirmed) => return Err(Refusal::HoldIs(state)),
        }
        Ok(self.hold_reply(slot))
    }

    pub(super) fn revoke_hold(
        &mut self,
        hold: HoldId,
        reason: Option<Text>,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let slot = self.current_hold(hold, now, changes)?;
        match self.hold_at(slot).expect("just found").state {
            HoldState::Held | HoldState::Confirming => {
                self.end_hold(slot, HoldState::Revoked, Kind::HoldRevoked, now, changes);
                changes.explain(reason);
            }
            HoldState::Revoked => {}
            state => return Err(wrong_state(state)),
        }
        Ok(self.hold_reply(slot))
    }

    /// Frees everything a hold keeps and closes it for good, but for a late payment.
    pub(super) fn end_hold(
        &mut self,
        slot: HoldSlot,
        state: HoldState,
        kind: Kind,
        now: Timestamp,
        changes: &mut Changes,
    ) {
        let from = changes.touched.len();
        self.unschedule(slot);
        let hold = self.hold_mut(slot);
        assert!(hold.keeps_items(), "a hold ends once");
        // A hold that ran out ended when it ran out, not when that was noticed.
        hold.ended_at = if state == HoldState::Expired { now.min(hold.live_until()) } else { now };
        let was_paying = hold.state == HoldState::Confirming;
        hold.state = state;
        hold.version += 1;
        let (event, items, holder) = (hold.event, hold.items.clone(), hold.holder.clone());
        let reference = hold.payment.as_ref().map(|payment| payment.reference.clone());
        if was_paying {
            self.event_mut(event).count_payment_over();
        }
        self.put_back(event, &items, Owner::Hold(slot));
        self.event_mut(event).count_holder(holder.as_ref(), -units(&items));
        self.touch_items(changes, event, &items);
        changes.touched.push(Touched::Hold(slot));
        if let Some(reference) = reference {
            self.void_payment(event, reference, changes);
        }
        self.log(changes, from, event, now, kind);
        self.remember_ended(slot);
    }
}
