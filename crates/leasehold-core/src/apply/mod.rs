//! The rules themselves, a file for each part of a hold's life.

mod confirm;
mod create;
mod end;
mod operate;
mod pay;
mod want;

use crate::{Changes, Command, HoldId, HoldSlot, HoldState, Refusal, Reply, State, Timestamp};

impl State {
    /// Carries out a command at `now`, or says why not.
    ///
    /// What changed is added to `changes`, one log entry for the command and one for each hold whose
    /// end was noticed on the way. `now` must not be before that of an earlier call.
    pub fn apply(
        &mut self,
        command: Command,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        match command {
            Command::CreateEvent(create) => self.create_event(create, now, changes),
            Command::UpdateEvent(update) => self.update_event(update, now, changes),
            Command::CreateHold(create) => self.create_hold(create, now, changes),
            Command::AmendHold(amend) => self.amend_hold(amend, now, changes),
            Command::ReleaseHold(hold) => self.release_hold(hold, now, changes),
            Command::RevokeHold(hold, reason) => self.revoke_hold(hold, reason, now, changes),
            Command::BeginPayment(begin) => self.begin_payment(begin, now, changes),
            Command::PaymentFailed(hold, reference) => self.payment_failed(hold, reference, now, changes),
            Command::ConfirmHold(confirm) => self.confirm_hold(confirm, now, changes),
            Command::CancelBooking(cancel) => self.cancel_booking(cancel, now, changes),
            Command::CreateBlock(create) => self.create_block(create, now, changes),
            Command::RemoveBlock(event, block) => self.remove_block(event, block, now, changes),
        }
    }

    /// The hold with this id. If its time has run out, that is noted first.
    fn current_hold(
        &mut self,
        id: HoldId,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<HoldSlot, Refusal> {
        let slot = self.hold_slot(id).ok_or(Refusal::NotFound)?;
        self.expire_if_due(slot, now, changes);
        Ok(slot)
    }

    /// The hold's answer.
    fn hold_reply(&self, slot: HoldSlot) -> Reply {
        Reply::Hold(self.hold_at(slot).expect("the slot was found in this command").clone())
    }
}

/// What to say of a hold that is not in the state a command needs.
fn wrong_state(state: HoldState) -> Refusal {
    match state {
        HoldState::Released | HoldState::Expired | HoldState::Revoked => Refusal::HoldOver(state),
        HoldState::Held | HoldState::Confirming | HoldState::Confirmed => Refusal::HoldIs(state),
    }
}
