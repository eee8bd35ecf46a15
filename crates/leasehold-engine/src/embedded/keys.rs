//! Which idempotency keys are known: in flight, or answered by a journal entry.

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
            Some(Known::Answered(seq)) => Begin::Answered(*seq),
        }
    }

    /// Where the key's answer is, if it was answered.
    pub(crate) fn answer_of(&self, key: &IdempotencyKey) -> Option<u64> {
        match self.lock().known.get(&tag(key.scope)) {
            Some(Known::Answered(seq)) => Some(*seq),
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

    /// Notes that a key's answer is durable, and forgets the oldest. Returns the number below which all are forgotten.
    pub(crate) fn answered(&self, scope: u128, seq: u64, at: Timestamp) -> Option<u64> {
        let mut inside = self.lock();
        inside.known.insert(tag(scope), Known::Answered(seq));
        inside.answered.push_back((at, tag(scope), seq));
        let mut forgotten = None;
        // Two at a time: the surplus of a lowered limit melts away without a pause.
        for _ in 0..2 {
            let Some(&(then, tag, oldest)) = inside.answered.front() else { break };
            if inside.answered.len() <= ANSWERS_MAX && at < then.after(ANSWERS_AGE_MAX) {
                break;
            }
            inside.answered.pop_front();
            inside.known.remove(&tag);
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
