//! Which idempotency keys are known: in flight, or answered.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use hashbrown::HashMap;
use leasehold_core::{Millis, Timestamp};

use crate::IdempotencyKey;

/// Answers that are remembered at most.
pub(crate) const ANSWERS_MAX: usize = 1_000_000;
/// How long they are remembered at most.
pub(crate) const ANSWERS_AGE_MAX: Millis = Millis(24 * 60 * 60 * 1_000);

/// The known keys. The answers themselves are on disk.
#[derive(Debug, Default)]
pub(crate) struct Keys(Mutex<Inside>);

#[derive(Debug, Default)]
struct Inside {
    known: HashMap<u64, Known>,
    /// Answered keys, oldest first.
    answered: VecDeque<(Timestamp, u64, u64)>,
    /// The answers up to this number are forgotten, and the writer does not know it yet.
    forgotten: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
enum Known {
    InFlight(u64),
    Answered(u64),
}

/// What is known of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Nothing: it is in flight from now on.
    New,
    /// The same request is being worked on.
    InFlight,
    /// Another request has this key and is being worked on.
    Mismatch,
    /// It was answered; the answer is under this number.
    Answered(u64),
}

impl Keys {
    /// Claims a key for a request, if nobody has it.
    pub(crate) fn begin(&self, key: &IdempotencyKey) -> Begin {
        let mut inside = self.lock();
        match inside.known.get(&tag(key.scope)) {
            None => {
                inside.known.insert(tag(key.scope), Known::InFlight(tag(key.fingerprint)));
                Begin::New
            }
            Some(Known::InFlight(fingerprint)) if *fingerprint == tag(key.fingerprint) => Begin::InFlight,
            Some(Known::InFlight(_)) => Begin::Mismatch,
            Some(Known::Answered(number)) => Begin::Answered(*number),
        }
    }

    /// Where the key's answer is, if it was answered.
    pub(crate) fn answer_of(&self, key: &IdempotencyKey) -> Option<u64> {
        match self.lock().known.get(&tag(key.scope)) {
            Some(Known::Answered(number)) => Some(*number),
            Some(Known::InFlight(_)) | None => None,
        }
    }

    /// Lets go of a claim: nothing happened under it.
    pub(crate) fn abandon(&self, key: &IdempotencyKey) {
        let mut inside = self.lock();
        if let Some(Known::InFlight(_)) = inside.known.get(&tag(key.scope)) {
            inside.known.remove(&tag(key.scope));
        }
    }

    /// The same for all answers of a commit; what is forgotten is told to whoever asks next.
    pub(crate) fn all_answered(&self, answers: &[(u128, u64)], at: Timestamp) {
        for &(scope, number) in answers {
            let forgotten = self.answered(scope, number, at);
            let mut inside = self.lock();
            inside.forgotten = inside.forgotten.max(forgotten);
        }
    }

    /// The number up to which answers were forgotten since this was last asked.
    pub(crate) fn take_forgotten(&self) -> Option<u64> {
        self.lock().forgotten.take()
    }

    /// Notes that a key's answer is durable, and forgets the oldest. Returns the number below which all are forgotten.
    pub(crate) fn answered(&self, scope: u128, number: u64, at: Timestamp) -> Option<u64> {
        let mut inside = self.lock();
        inside.known.insert(tag(scope), Known::Answered(number));
        inside.answered.push_back((at, tag(scope), number));
        let mut forgotten = None;
        // Two at a time: the surplus of a lowered limit melts away without a pause.
        for _ in 0..2 {
            let Some(&(then, tag, oldest)) = inside.answered.front() else { break };
            if inside.answered.len() <= ANSWERS_MAX && at < then.after(ANSWERS_AGE_MAX) {
                break;
            }
            inside.answered.pop_front();
            if let Some(Known::Answered(number)) = inside.known.get(&tag)
                && *number == oldest
            {
                inside.known.remove(&tag);
            }
            forgotten = Some(oldest);
        }
        forgotten
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Half of a hash is enough to find an answer; the answer has the other half, and is compared with it.
fn tag(hash: u128) -> u64 {
    (hash >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn key(scope: u128, fingerprint: u128) -> IdempotencyKey {
        IdempotencyKey { scope: scope << 64, fingerprint: fingerprint << 64 }
    }

    #[test]
    fn a_key_is_in_flight_for_one_request_until_that_is_answered_or_given_up() {
        let keys = Keys::default();
        assert_eq!(keys.begin(&key(1, 1)), Begin::New);
        assert_eq!(keys.begin(&key(1, 1)), Begin::InFlight);
        assert_eq!(keys.begin(&key(1, 2)), Begin::Mismatch);
        assert_eq!(keys.begin(&key(2, 1)), Begin::New, "another key is free");
        assert_eq!(keys.answer_of(&key(1, 1)), None);
        keys.abandon(&key(1, 1));
        assert_eq!(keys.begin(&key(1, 2)), Begin::New, "nothing happened under it");
        assert_eq!(keys.answered(key(1, 2).scope, 7, NOW), None);
        // Whether it is the same request is for the answer to say, which has the whole hash.
        assert_eq!(keys.begin(&key(1, 1)), Begin::Answered(7));
        keys.abandon(&key(1, 2));
        assert_eq!((keys.begin(&key(1, 2)), keys.answer_of(&key(1, 2))), (Begin::Answered(7), Some(7)));
    }

    #[test]
    fn answers_are_forgotten_after_a_day_the_oldest_first_and_two_at_a_time() {
        let keys = Keys::default();
        for number in 1..=5 {
            assert_eq!(keys.answered(key(number, 1).scope, number as u64, NOW), None);
        }
        let almost = Timestamp::from_millis(NOW.as_millis() + ANSWERS_AGE_MAX.0 - 1);
        assert_eq!(keys.answered(key(6, 1).scope, 6, almost), None);
        assert_eq!(keys.answered(key(7, 1).scope, 7, NOW.after(ANSWERS_AGE_MAX)), Some(2));
        assert_eq!((keys.begin(&key(2, 1)), keys.begin(&key(3, 1))), (Begin::New, Begin::Answered(3)));
        assert_eq!(keys.answered(key(8, 1).scope, 8, NOW.after(ANSWERS_AGE_MAX)), Some(4));
        assert_eq!(keys.answered(key(9, 1).scope, 9, NOW.after(ANSWERS_AGE_MAX)), Some(5));
        assert_eq!(keys.answered(key(10, 1).scope, 10, NOW.after(ANSWERS_AGE_MAX)), None);
        assert_eq!(keys.begin(&key(6, 1)), Begin::Answered(6), "a day old only in a moment");
    }

    #[test]
    fn no_more_answers_are_remembered_than_there_is_room_for() {
        let keys = Keys::default();
        let most = ANSWERS_MAX as u64;
        for number in 1..=most {
            assert_eq!(keys.answered(key(number.into(), 1).scope, number, NOW), None);
        }
        assert_eq!(keys.answered(key(u128::from(most) + 1, 1).scope, most + 1, NOW), Some(1));
        assert_eq!((keys.begin(&key(1, 1)), keys.begin(&key(2, 1))), (Begin::New, Begin::Answered(2)));
        assert_eq!(keys.lock().answered.len(), ANSWERS_MAX);
    }
}
