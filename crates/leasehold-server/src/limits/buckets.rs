//! Token buckets, one for each address or event: cheap to take from, and charged for what other servers gave.
//!
//! A bucket is one number: when it will be full again. A token taken moves that away by the time one takes to come
//! back, and there are none left when it is as far away as a whole burst. What other servers gave may move it
//! further: then this one gives nothing until that is paid back.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Subject;
use crate::config::Rate;

/// Those who take tokens of different subjects rarely meet.
const SHARDS: usize = 16;

/// The buckets of one limit. Times are counted from when it was made.
#[derive(Debug)]
pub(super) struct Buckets {
    /// The time that a token takes to come back.
    interval: Duration,
    /// The time in which an empty bucket fills.
    burst: Duration,
    /// Whether other servers are told what was taken.
    shared: bool,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    /// The shard that tells of its tokens first, so that each has its turn when there are many.
    next: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shard {
    buckets: HashMap<Subject, Bucket>,
    /// Those with untold tokens.
    untold: Vec<Subject>,
}

#[derive(Debug, Default)]
struct Bucket {
    full_at: Duration,
    /// Tokens taken that the other servers do not know of.
    untold: u32,
}

/// Tokens taken here that other servers do not know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) subject: Subject,
    /// The time that they take to come back.
    pub(super) time: Duration,
}

impl Buckets {
    pub(super) fn new(rate: Rate, shared: bool) -> Self {
        let interval = Duration::from_secs(1) / rate.per_second.max(1);
        Self {
            interval,
            burst: interval * rate.burst.max(1),
            shared,
            hasher: RandomState::new(),
            shards: Default::default(),
            next: AtomicUsize::new(0),
        }
    }

    /// The time in which an empty bucket fills.
    pub(super) fn burst(&self) -> Duration {
        self.burst
    }

    /// Takes a token, or says when there will be one.
    pub(super) fn take(&self, subject: Subject, now: Duration) -> Result<(), Duration> {
        let mut shard = self.shard_of(subject);
        let Shard { buckets, untold } = &mut *shard;
        let bucket = buckets.entry(subject).or_default();
        let full_at = bucket.full_at.max(now) + self.interval;
        if full_at > now + self.burst {
            return Err(full_at - now - self.burst);
        }
        bucket.full_at = full_at;
        if self.shared {
            if bucket.untold == 0 {
                untold.push(subject);
            }
            bucket.untold += 1;
        }
        Ok(())
    }

    /// What the other servers are to be told, of so many subjects at most. It counts as told.
    pub(super) fn tell(&self, subjects_max: usize) -> Vec<Taken> {
        let mut taken = Vec::new();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        for place in 0..SHARDS {
            let mut shard = lock(&self.shards[(first + place) % SHARDS]);
            let Shard { buckets, untold } = &mut *shard;
            let room = subjects_max - taken.len();
            for subject in untold.drain(..untold.len().min(room)) {
                if let Some(bucket) = buckets.get_mut(&subject) {
                    let tokens = std::mem::take(&mut bucket.untold);
                    taken.push(Taken { subject, time: self.interval * tokens });
                }
            }
        }
        taken
    }

    /// All servers together took so much that the bucket would have been full `level` after `at`.
    pub(super) fn charge(&self, subject: Subject, at: Duration, level: Duration) {
        let mut shard = self.shard_of(subject);
        if let Some(bucket) = shard.buckets.get_mut(&subject) {
            let with_untold = at + level + self.interval * bucket.untold;
            // Never less than what this server knows itself: the others forget when Redis does.
            bucket.full_at = bucket.full_at.max(with_untold);
        }
    }

    /// Forgets buckets that are full.
    pub(super) fn tidy(&self, now: Duration) {
        for shard in &self.shards {
            lock(shard).buckets.retain(|_, bucket| bucket.full_at > now || bucket.untold > 0);
        }
    }

    fn shard_of(&self, subject: Subject) -> MutexGuard<'_, Shard> {
        lock(&self.shards[(self.hasher.hash_one(subject) % SHARDS as u64) as usize])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use leasehold_core::EventNo;

    use super::*;

    const GALA: Subject = Subject::Event(EventNo(1));

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Ten a second, four at once.
    fn buckets() -> Buckets {
        Buckets::new(Rate { per_second: 10, burst: 4 }, true)
    }

    fn take_all(buckets: &Buckets, now: Duration) -> usize {
        std::iter::repeat_with(|| buckets.take(GALA, now)).take_while(Result::is_ok).count()
    }

    #[test]
    fn a_burst_and_then_so_many_a_second() {
        let buckets = buckets();
        assert_eq!(take_all(&buckets, ms(0)), 4);
        assert_eq!(buckets.take(GALA, ms(30)), Err(ms(70)));
        assert_eq!((1..=100).map(|tenth| take_all(&buckets, ms(tenth * 100))).sum::<usize>(), 100);
        assert_eq!(take_all(&buckets, ms(60_000)), 4, "it is full again and not fuller");
        assert_eq!(buckets.take(Subject::Event(EventNo(2)), ms(60_000)), Ok(()), "each has its own");
    }

    #[test]
    fn what_others_took_is_missing_here_and_paid_back_first() {
        let buckets = buckets();
        assert_eq!(take_all(&buckets, ms(0)), 4);
        assert_eq!(buckets.tell(9), [Taken { subject: GALA, time: ms(400) }]);
        assert_eq!(buckets.tell(9), [], "told once");
        // Two others took four each at the same time.
        buckets.charge(GALA, ms(0), ms(1_200));
        assert_eq!(take_all(&buckets, ms(800)), 0, "their eight tokens take as long to come back");
        assert_eq!(take_all(&buckets, ms(950)), 1);
        // Taken after it was told and before the answer: not forgotten, and not counted twice.
        buckets.charge(GALA, ms(950), ms(300));
        assert_eq!(buckets.take(GALA, ms(950)), Err(ms(100)));
        buckets.charge(GALA, ms(950), ms(0));
        assert_eq!(buckets.take(GALA, ms(950)), Err(ms(100)), "a Redis that forgot gives nothing back");
    }

    #[test]
    fn many_have_their_turn_and_nothing_is_kept_for_ever() {
        let buckets = buckets();
        for number in 0..1_000 {
            buckets.take(Subject::Event(EventNo(number)), ms(0)).unwrap();
        }
        let told: Vec<usize> = std::iter::repeat_with(|| buckets.tell(300).len()).take(5).collect();
        assert_eq!(told, [300, 300, 300, 100, 0]);
        buckets.tidy(ms(99));
        assert_eq!(buckets.shards.iter().map(|shard| lock(shard).buckets.len()).sum::<usize>(), 1_000);
        buckets.tidy(ms(100));
        assert_eq!(buckets.shards.iter().map(|shard| lock(shard).buckets.len()).sum::<usize>(), 0);
    }

    #[test]
    fn a_server_alone_keeps_no_list_for_others() {
        let buckets = Buckets::new(Rate { per_second: 10, burst: 4 }, false);
        assert_eq!(take_all(&buckets, ms(0)), 4);
        assert_eq!(buckets.tell(9), []);
    }
}
