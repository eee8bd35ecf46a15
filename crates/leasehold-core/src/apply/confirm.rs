//! The sale: a hold becomes a booking, in time or late, or its payment must be given back.

use super::want::{Chosen, split};
use super::wrong_state;
use crate::hold::units;
use crate::{
    Booking, BookingSlot, BookingState, CancelBooking, Changes, ConfirmHold, EventState, Hold, HoldSlot,
    HoldState, Item, Kind, Owner, PaymentState, Reference, Refusal, Reply, State, Timestamp, Touched,
};

impl State {
    pub(super) fn confirm_hold(
        &mut self,
        confirm: ConfirmHold,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        if let (None, Some(reference)) = (self.hold_slot(confirm.hold), &confirm.payment_ref) {
            return Err(Refusal::HoldForgotten(reference.clone()));
        }
        let slot = self.current_hold(confirm.hold, now, changes)?;
        let hold = self.hold_at(slot).expect("just found").clone();
        match hold.state {
            HoldState::Held => self.confirm_live(slot, &hold, confirm, now, changes),
            HoldState::Confirming => {
                let expected = hold.payment.as_ref().map(|payment| &payment.reference);
                if confirm.payment_ref.as_ref() != expected {
                    return Err(Refusal::HoldIs(HoldState::Confirming));
                }
                self.confirm_live(slot, &hold, confirm, now, changes)
            }
            HoldState::Confirmed => self.confirm_again(&hold, confirm.payment_ref, now, changes),
            HoldState::Released | HoldState::Expired | HoldState::Revoked => {
                self.confirm_late(slot, &hold, confirm, now, changes)
            }
        }
    }

    fn confirm_live(
        &mut self,
        slot: HoldSlot,
        hold: &Hold,
        confirm: ConfirmHold,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let (sold, rest) = match &confirm.items {
            Some(items) => split(&hold.items, items)?,
            None => (hold.items.to_vec(), Vec::new()),
        };
        if sold.is_empty() {
            return Err(Refusal::Invalid("there must be at least one item"));
        }
        if let Some(reference) = &confirm.payment_ref {
            self.payment_state(hold, reference)?;
        }

        let from = changes.touched.len();
        self.unschedule(slot);
        if hold.state == HoldState::Confirming {
            self.event_mut(hold.event).count_payment_over();
        }
        self.put_back(hold.event, &rest, Owner::Hold(slot));
        self.event_mut(hold.event).count_holder(hold.holder.as_ref(), -units(&rest));
        let booking = self.add_booking(hold, &confirm, sold, false, now);
        let items = self.booking_at(booking).expect("just added").items.clone();
        for item in &items {
            let event = self.event_mut(hold.event);
            match *item {
                Item::Seat { seat, .. } => event.set_owner(seat, Owner::Booking(booking)),
                Item::Pool { pool, quantity } => {
                    event.pool_mut(pool).held -= quantity;
                    event.pool_mut(pool).sold += quantity;
                }
            }
        }
        self.touch_items(changes, hold.event, &hold.items);
        self.close_confirmed(slot, booking, confirm, from, now, changes);
        Ok(Reply::Booking(self.booking_at(booking).expect("just added").clone()))
    }

    /// The payment came after the hold had ended: sold all the same if everything is still free.
    fn confirm_late(
        &mut self,
        slot: HoldSlot,
        hold: &Hold,
        confirm: ConfirmHold,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let Some(reference) = confirm.payment_ref.clone() else { return Err(wrong_state(hold.state)) };
        let wanted = match &confirm.items {
            Some(items) => split(&hold.items, items)?.0,
            None => hold.items.to_vec(),
        };
        if self.must_be_given_back(hold, &reference)? {
            return Ok(Reply::RefundDue(hold.event, reference));
        }
        let event = self.event(hold.event).expect("a hold has an event");
        let accepts = event.policy.accept_late_payment && event.state == EventState::Open;
        let mut chosen = Chosen::default();
        for item in &wanted {
            match *item {
                Item::Seat { seat, .. } => chosen.seats.push(seat),
                Item::Pool { pool, quantity } => chosen.pools.push((pool, quantity)),
            }
        }
        if !accepts || !self.still_free(hold, &chosen, now, changes)? {
            return Ok(self.refund(hold, reference, now, changes));
        }
        let from = changes.touched.len();
        let booking = self.add_booking(hold, &confirm, wanted, true, now);
        let items = self.take(hold.event, &chosen, Owner::Booking(booking)).into_boxed_slice();
        self.event_mut(hold.event).count_holder(hold.holder.as_ref(), units(&items));
        self.touch_items(changes, hold.event, &items);
        self.bookings.get_mut(booking.0).expect("just added").items = items;
        self.close_confirmed(slot, booking, confirm, from, now, changes);
        Ok(Reply::Booking(self.booking_at(booking).expect("just added").clone()))
    }

    /// The hold is sold already: the same payment gets the same answer, another one must be given back. Of a sale that
    /// was cancelled nobody is told that it was made.
    fn confirm_again(
        &mut self,
        hold: &Hold,
        payment_ref: Option<Reference>,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let booking =
            hold.booking.and_then(|id| self.booking(id)).expect("a confirmed hold has a booking").clone();
        match payment_ref {
            payment_ref if payment_ref == booking.payment_ref => match booking.state {
                BookingState::Booked => Ok(Reply::Booking(booking)),
                BookingState::Cancelled => Err(Refusal::SaleCancelled(booking.id)),
            },
            None => Err(Refusal::HoldIs(HoldState::Confirmed)),
            Some(reference) => match self.must_be_given_back(hold, &reference)? {
                true => Ok(Reply::RefundDue(hold.event, reference)),
                false => Ok(self.refund(hold, reference, now, changes)),
            },
        }
    }

    /// Whether all of it is free. Refuses only when that cannot be said yet.
    fn still_free(
        &mut self,
        hold: &Hold,
        chosen: &Chosen,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<bool, Refusal> {
        use crate::ItemRequest;
        let seats = chosen.seats.iter().map(|&seat| ItemRequest::Seat(seat));
        let pools = chosen.pools.iter().map(|&(pool, quantity)| ItemRequest::Pool(pool, quantity));
        let wanted: Vec<ItemRequest> = seats.chain(pools).collect();
        match self.choose(hold.event, &wanted, usize::MAX, now, changes) {
            Ok(_) => Ok(true),
            Err(Refusal::NotYet) => Err(Refusal::NotYet),
            Err(_) => Ok(false),
        }
    }

    /// Whether a late payment was answered "give it back" before, or always is because the hold has had too many.
    fn must_be_given_back(&self, hold: &Hold, reference: &Reference) -> Result<bool, Refusal> {
        Ok(match self.payment_state(hold, reference)? {
            Some(state) => state == PaymentState::RefundDue,
            None => !self.may_have_more_payments(hold),
        })
    }

    /// Notes that a payment must be given back. From then on the hold is kept, and asked again gives the same answer.
    fn refund(&mut self, hold: &Hold, reference: Reference, now: Timestamp, changes: &mut Changes) -> Reply {
        let from = changes.touched.len();
        self.set_payment(hold.event, hold.id, reference.clone(), PaymentState::RefundDue, changes);
        self.log(changes, from, hold.event, now, Kind::RefundDue);
        Reply::RefundDue(hold.event, reference)
    }

    fn add_booking(
        &mut self,
        hold: &Hold,
        confirm: &ConfirmHold,
        items: Vec<Item>,
        revived: bool,
        now: Timestamp,
    ) -> BookingSlot {
        assert!(self.booking(confirm.booking).is_none(), "a booking's id is used once");
        BookingSlot(self.bookings.put(Booking {
            id: confirm.booking,
            number: self.next_number(),
            event: hold.event,
            hold: hold.id,
            state: BookingState::Booked,
            items: items.into_boxed_slice(),
            holder: hold.holder.clone(),
            payment_ref: confirm.payment_ref.clone(),
            order_ref: confirm.order_ref.clone(),
            revived,
            booked_at: now,
            cancelled_at: Timestamp::NEVER,
        }))
    }

    fn close_confirmed(
        &mut self,
        slot: HoldSlot,
        booking: BookingSlot,
        confirm: ConfirmHold,
        from: usize,
        now: Timestamp,
        changes: &mut Changes,
    ) {
        let hold = self.hold_mut(slot);
        let (event, id) = (hold.event, hold.id);
        hold.state = HoldState::Confirmed;
        hold.version += 1;
        hold.booking = Some(confirm.booking);
        hold.ended_at = hold.ended_at.min(now);
        changes.touched.push(Touched::Hold(slot));
        changes.touched.push(Touched::Booking(booking));
        if let Some(reference) = confirm.payment_ref {
            self.set_payment(event, id, reference, PaymentState::Booked, changes);
        }
        self.log(changes, from, event, now, Kind::BookingCreated);
    }

    pub(super) fn cancel_booking(
        &mut self,
        cancel: CancelBooking,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let slot = self.bookings.find(cancel.booking.as_raw()).map(BookingSlot).ok_or(Refusal::NotFound)?;
        let booking = self.booking_at(slot).expect("just found").clone();
        if booking.state == BookingState::Cancelled {
            return Ok(Reply::Booking(booking));
        }
        let from = changes.touched.len();
        let epoch = self.epoch;
        self.put_back(booking.event, &booking.items, Owner::Booking(slot));
        let event = self.event_mut(booking.event);
        event.count_holder(booking.holder.as_ref(), -units(&booking.items));
        for item in &booking.items {
            // The former owner's fence is void at once, not only when the seat is sold again.
            if let Item::Seat { seat, .. } = *item {
                let fence = event.seat(seat).fence.next(epoch);
                event.set_fence(seat, fence);
            }
        }
        self.touch_items(changes, booking.event, &booking.items);
        changes.touched.push(Touched::Booking(slot));
        let known = self.bookings.get_mut(slot.0).expect("just found");
        known.state = BookingState::Cancelled;
        known.cancelled_at = now;
        let reply = Reply::Booking(known.clone());
        self.log(changes, from, booking.event, now, Kind::BookingCancelled);
        Ok(reply)
    }
}
