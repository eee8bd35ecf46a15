//! What was answered under an idempotency key, so that a repeated request has one effect and one answer.
//!
//! Answers are in memory. A repetition that asks another server, or this one after a restart, is a new acquisition with
//! an owner token of its own. It cannot be given the lease of the first one: where that was given up, its server releases
//! it under its token for as long as its request may be on its way, and would release the new one with it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_api::{Code, LockGrant, LockRelease};
use leasehold_engine::IdempotencyKey;
use leasehold_lock::{Clock, Moment};

use crate::problem::ApiError;

/// Most answers that are remembered; the oldest go first.
pub(super) const ANSWERS_MAX: usize = 100_000;
/// For how long they are remembered.
const ANSWERS_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What was answered.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Granted { grant: LockGrant, ends_at: Moment },
    Released(LockRelease),
}

/// How a request with a key begins.
pub(super) enum Begin<'a> {
    Answered(Answer),
    /// It is in flight as long as the ticket lives.
    New(Ticket<'a>),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Answers {
    clock: Clock,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    /// The fingerprint of the request that each key is being used for.
    in_flight: HashMap<u128, u128>,
    answered: HashMap<u128, (u128, Answer)>,
    /// The keys of `answered`, oldest first.
    by_age: VecDeque<(Moment, u128)>,
}

/// A request with a key that is being worked on. Unless it is finished, the next one may try again.
pub(super) struct Ticket<'a> {
    answers: &'a Answers,
    key: IdempotencyKey,
}

impl Answers {
    pub(super) fn begin(&self, key: IdempotencyKey) -> Result<Begin<'_>, ApiError> {
        let now = self.clock.now();
        let mut inside = self.lock();
        inside.forget(now);
        if let Some((fingerprint, answer)) = inside.answered.get(&key.scope) {
            return match *fingerprint == key.fingerprint {
                true => Ok(Begin::Answered(answer.clone())),
                false => Err(ApiError::new(Code::IdempotencyMismatch)),
            };
        }
        match inside.in_flight.get(&key.scope) {
            Some(fingerprint) if *fingerprint == key.fingerprint => {
                return Err(ApiError::new(Code::IdempotencyInFlight));
            }
            Some(_) => return Err(ApiError::new(Code::IdempotencyMismatch)),
            None => {}
        }
        inside.in_flight.insert(key.scope, key.fingerprint);
        Ok(Begin::New(Ticket { answers: self, key }))
    }

    /// Corrects when a remembered lease ends.
    pub(super) fn ends_at(&self, scope: u128, moment: Moment) {
        if let Some((_, Answer::Granted { ends_at, .. })) = self.lock().answered.get_mut(&scope) {
            *ends_at = moment;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// Makes room for one more answer, and drops what is too old.
    fn forget(&mut self, now: Moment) {
        while let Some(&(answered_at, scope)) = self.by_age.front() {
            if self.by_age.len() < ANSWERS_MAX && now.since(answered_at) < ANSWERS_AGE_MAX {
                break;
            }
            self.by_age.pop_front();
            self.answered.remove(&scope);
        }
    }
}

impl Ticket<'_> {
    pub(super) fn key(&self) -> &IdempotencyKey {
        &self.key
    }

    /// Remembers what came of it.
    pub(super) fn finish(self, answer: Answer) {
        let now = self.answers.clock.now();
        let mut inside = self.answers.lock();
        inside.forget(now);
        inside.answered.insert(self.key.scope, (self.key.fingerprint, answer));
        inside.by_age.push_back((now, self.key.scope));
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.answers.lock().in_flight.remove(&self.key.scope);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: IdempotencyKey = IdempotencyKey { scope: 1, fingerprint: 2 };

    fn ticket(answers: &Answers) -> Ticket<'_> {
        match answers.begin(KEY) {
            Ok(Begin::New(ticket)) => ticket,
            Ok(Begin::Answered(answer)) => panic!("answered: {answer:?}"),
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    fn released() -> Answer {
        Answer::Released(LockRelease { name: "a".to_owned(), released: true })
    }

    #[test]
    fn one_at_a_time_and_then_the_same_answer() {
        let answers = Answers::default();
        let first = ticket(&answers);
        assert!(answers.begin(KEY).is_err(), "in flight");
        first.finish(released());
        assert!(matches!(answers.begin(KEY), Ok(Begin::Answered(Answer::Released(_)))));
        assert!(answers.begin(IdempotencyKey { fingerprint: 3, ..KEY }).is_err(), "another body");
    }

    #[test]
    fn answers_are_forgotten_by_age_and_by_number() {
        let clock = Clock::manual();
        let answers = Answers { clock: clock.clone(), ..Answers::default() };
        for scope in 0..ANSWERS_MAX as u128 + 10 {
            match answers.begin(IdempotencyKey { scope, fingerprint: 0 }) {
                Ok(Begin::New(ticket)) => ticket.finish(released()),
                _ => panic!("{scope} was not new"),
            }
        }
        let (answered, by_age) = {
            let inside = answers.lock();
            (inside.answered.len(), inside.by_age.len())
        };
        assert!(answered <= ANSWERS_MAX);
        assert_eq!(answered, by_age);
        clock.advance(ANSWERS_AGE_MAX);
        drop(ticket(&answers));
        assert!(answers.lock().answered.is_empty());
    }
}
