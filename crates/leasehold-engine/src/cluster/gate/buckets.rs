//! Buckets: a hot pool's claims are spread over the slots of a cluster, so that no single master has to take them all.
//!
//! While few ask, everything is asked of the whole pool. When more ask at a time than fit into one script, and the pool has
//! plenty, callers go by a hash to one of several buckets, each of which may claim an equal share of what is free in the
//! ledger. The shares follow the ledger's number as it is read in the log, so nothing has to be moved between
//! them. Who finds a share used up asks the whole pool, and only that one says "sold out": the last unit is found.

use super::doubts::Owner;

/// More keys than a cluster usually has masters, so that some are on each.
const BUCKETS_MAX: u32 = 8;
/// A smaller share would be used up by what is on its way to the ledger.
const UNITS_PER_BUCKET_MIN: u32 = 512;

/// Where units of a pool are claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bucket {
    /// The pool as a whole.
    Whole,
    /// One of several, each with an equal share.
    Share { number: u32, of: u32 },
}

impl Bucket {
    /// The bucket of a caller in a pool with so many free units.
    pub(super) fn of(who: Owner, free: u32) -> Self {
        let of = (free / UNITS_PER_BUCKET_MIN).min(BUCKETS_MAX);
        match who {
            Owner::Hold(end) if of > 1 => Self::Share { number: (end % u64::from(of)) as u32, of },
            Owner::Hold(_) | Owner::Unknown | Owner::Nobody => Self::Whole,
        }
    }

    /// How many of a pool's free units may be claimed in it.
    pub(super) fn share_of(self, free: u32) -> u32 {
        match self {
            Self::Whole => free,
            Self::Share { of, .. } => free / of,
        }
    }

    /// What its key's tag ends with.
    pub(super) fn tag(self) -> String {
        match self {
            Self::Whole => String::new(),
            Self::Share { number, .. } => format!(".share-{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_equal_never_more_than_there_is_and_none_of_a_pool_that_runs_out() {
        for free in [0, 1, 511, 1_023, 1_024, 4_095, 10_000, u32::MAX] {
            let mut met = std::collections::HashSet::new();
            for end in 0..1_000 {
                match Bucket::of(Owner::Hold(end * 7_919), free) {
                    Bucket::Whole => assert!(free < 2 * UNITS_PER_BUCKET_MIN),
                    bucket @ Bucket::Share { number, of } => {
                        assert!(number < of && of <= BUCKETS_MAX);
                        assert!(bucket.share_of(free) >= UNITS_PER_BUCKET_MIN);
                        assert!(u64::from(bucket.share_of(free)) * u64::from(of) <= u64::from(free));
                        met.insert(bucket.tag());
                    }
                }
            }
            assert!(met.len() as u32 == (free / UNITS_PER_BUCKET_MIN).min(BUCKETS_MAX) || met.is_empty());
        }
    }
}
