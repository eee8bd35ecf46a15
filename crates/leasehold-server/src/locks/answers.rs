//! What was answered under an idempotency key, so that a repeated request has one effect and one answer.
//!
//! Answers are in memory. After a restart of a server with a data file a repeated acquisition finds its lease in the store
//! instead, because its owner token is made of the key and of nothing else. Servers on a ledger have tokens of their own.

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
/// What a given-up acquisition may have left in the store is given back by then: the last time that its locker does so is
/// after two minutes, when the store answers.
const GIVEN_UP_AGE_MAX: Duration = Duration::from_secs(150);
/// Most keys whose requests were given up lately; beyond it, requests with a key are turned away.
const GIVEN_UP_MAX: usize = 100_000;
/// Many keys are not looked through for those that are over more often than this.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// What was answered.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Granted { grant: LockGrant, ends_at: Moment },
    Released(LockRelease),
}

/// What a request that is given up may leave in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// A lease, or a place in line.
    MayBeLeft,
    /// Nothing that is in anybody's way.
    None,
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
    /// Requests that ended without a grant and may have left something: how often, and when last.
    ///
    /// What such a request may have left in the store is released in the background, under its owner token.
    /// The next try with the same key must not have that token, or it would be released too.
    given_up: HashMap<u128, (u32, Moment)>,
    /// When all of these were looked through.
    swept_at: Option<Moment>,
}

/// A request with a key that is being worked on. Unless it is finished, the next one may try again.
pub(super) struct Ticket<'a> {
    answers: &'a Answers,
    key: IdempotencyKey,
    attempt: u32,
    effect: Effect,
}

impl Answers {
    pub(super) fn begin(&self, key: IdempotencyKey, effect: Effect) -> Result<Begin<'_>, ApiError> {
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
            None if effect == Effect::MayBeLeft
                && inside.given_up.len() + inside.in_flight.len() >= GIVEN_UP_MAX =>
            {
                return Err(ApiError::new(Code::Overloaded));
            }
            None => {}
        }
        let given_up = inside.given_up.get(&key.scope);
        let lately = given_up.filter(|(_, last)| now.since(*last) < GIVEN_UP_AGE_MAX);
        let attempt = lately.map_or(0, |(attempts, _)| *attempts);
        inside.in_flight.insert(key.scope, key.fingerprint);
        Ok(Begin::New(Ticket { answers: self, key, attempt, effect }))
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
        let is_due = self.swept_at.is_none_or(|swept_at| now.since(swept_at) >= SWEEP_PAUSE);
        if self.given_up.len() >= GIVEN_UP_MAX / 2 && is_due {
            self.swept_at = Some(now);
            self.given_up.retain(|_, (_, last)| now.since(*last) < GIVEN_UP_AGE_MAX);
        }
    }
}

impl Ticket<'_> {
    pub(super) fn key(&self) -> &IdempotencyKey {
        &self.key
    }

    /// How many tries with this key were given up lately.
    pub(super) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// It was refused, and nothing of it is left. The next one may have the same token.
    pub(super) fn refused(mut self) {
        self.effect = Effect::None;
    }

    /// Remembers what came of it.
    pub(super) fn finish(mut self, answer: Answer) {
        self.effect = Effect::None;
        let now = self.answers.clock.now();
        let mut inside = self.answers.lock();
        inside.forget(now);
        inside.given_up.remove(&self.key.scope);
        inside.answered.insert(self.key.scope, (self.key.fingerprint, answer));
        inside.by_age.push_back((now, self.key.scope));
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut inside = self.answers.lock();
        inside.in_flight.remove(&self.key.scope);
        if self.effect == Effect::MayBeLeft {
            let now = self.answers.clock.now();
            inside.given_up.insert(self.key.scope, (self.attempt.wrapping_add(1), now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: IdempotencyKey = IdempotencyKey { scope: 1, fingerprint: 2 };

    fn ticket(answers: &Answers) -> Ticket<'_> {
        match answers.begin(KEY, Effect::MayBeLeft) {
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
        assert!(answers.begin(KEY, Effect::MayBeLeft).is_err(), "in flight");
        first.finish(released());
        assert!(matches!(answers.begin(KEY, Effect::None), Ok(Begin::Answered(Answer::Released(_)))));
        let other = IdempotencyKey { fingerprint: 3, ..KEY };
        assert!(answers.begin(other, Effect::MayBeLeft).is_err(), "another body");
    }

    #[test]
    fn a_try_after_one_that_was_given_up_is_another_one_for_a_while() {
        let clock = Clock::manual();
        let answers = Answers { clock: clock.clone(), ..Answers::default() };
        assert_eq!(ticket(&answers).attempt(), 0);
        assert_eq!(ticket(&answers).attempt(), 1);
        assert_eq!(ticket(&answers).attempt(), 2);
        clock.advance(GIVEN_UP_AGE_MAX);
        assert_eq!(ticket(&answers).attempt(), 0);
    }

    #[test]
    fn refusals_are_not_taken_for_requests_that_were_given_up() {
        let answers = Answers::default();
        ticket(&answers).refused();
        assert_eq!(ticket(&answers).attempt(), 0, "nothing is left that the next one must not meet");
        let begin = |scope, effect| match answers.begin(IdempotencyKey { scope, fingerprint: 0 }, effect) {
            Ok(Begin::New(ticket)) => Some(ticket),
            _ => None,
        };
        for scope in 10..GIVEN_UP_MAX as u128 + 20 {
            begin(scope, Effect::MayBeLeft).expect("refusals do not add up").refused();
            drop(begin(scope, Effect::None).expect("releases that failed do not either"));
        }
        for scope in 10..GIVEN_UP_MAX as u128 + 10 {
            drop(begin(scope, Effect::MayBeLeft));
        }
        assert!(begin(0, Effect::MayBeLeft).is_none(), "there is a bound");
        begin(0, Effect::None).expect("which is no reason to keep a lock").finish(released());
    }

    #[test]
    fn answers_are_forgotten_by_age_and_by_number() {
        let clock = Clock::manual();
        let answers = Answers { clock: clock.clone(), ..Answers::default() };
        for scope in 0..ANSWERS_MAX as u128 + 10 {
            match answers.begin(IdempotencyKey { scope, fingerprint: 0 }, Effect::MayBeLeft) {
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
