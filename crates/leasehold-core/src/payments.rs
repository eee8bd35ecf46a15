//! Payments: what became of each reference, and which references each hold has had.

use hashbrown::HashMap;

use crate::{EventNo, HoldId, Payment, PaymentState, Reference};

/// All payments that are remembered. Each belongs to a hold that is remembered too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Payments {
    known: HashMap<(EventNo, Reference), Payment>,
    /// The references of every hold that has any; at most as many as the limits allow.
    of_hold: HashMap<HoldId, Vec<Reference>>,
}

impl Payments {
    pub(crate) fn get(&self, event: EventNo, reference: &Reference) -> Option<&Payment> {
        self.known.get(&(event, reference.clone()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Payment> {
        self.known.values()
    }

    /// The payments of a hold of this event.
    pub(crate) fn of(&self, event: EventNo, hold: HoldId) -> impl Iterator<Item = &Payment> {
        let references = self.of_hold.get(&hold).into_iter().flatten();
        references.filter_map(move |reference| self.get(event, reference))
    }

    pub(crate) fn count_of(&self, hold: HoldId) -> usize {
        self.of_hold.get(&hold).map_or(0, Vec::len)
    }

    /// Adds a payment, or puts a newer image of it in its place.
    pub(crate) fn put(&mut self, payment: Payment) {
        let key = (payment.event, payment.reference.clone());
        let hold = payment.hold;
        let before = self.known.insert(key, payment.clone());
        if before.as_ref().is_some_and(|before| before.hold == hold) {
            return;
        }
        // Forgotten and used again by another hold; only recovery sees both.
        if let Some(before) = before {
            self.leave(before.hold, &payment.reference);
        }
        self.of_hold.entry(hold).or_default().push(payment.reference);
    }

    pub(crate) fn set_state(&mut self, event: EventNo, reference: &Reference, state: PaymentState) {
        let known = self.known.get_mut(&(event, reference.clone()));
        known.expect("the payment was found in this command").state = state;
    }

    /// Removes the payments of a hold that is being forgotten, and says which they were.
    pub(crate) fn forget(&mut self, event: EventNo, hold: HoldId) -> Vec<Reference> {
        let references = self.of_hold.remove(&hold).unwrap_or_default();
        for reference in &references {
            self.known.remove(&(event, reference.clone()));
        }
        references
    }

    fn leave(&mut self, hold: HoldId, reference: &Reference) {
        if let Some(references) = self.of_hold.get_mut(&hold) {
            references.retain(|known| known != reference);
            if references.is_empty() {
                self.of_hold.remove(&hold);
            }
        }
    }
}
