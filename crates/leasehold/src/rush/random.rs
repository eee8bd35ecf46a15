//! Cheap random numbers for choosing seats and naming runs. Not for secrets.

use std::hash::{BuildHasher, RandomState};

/// A stream of random numbers (SplitMix64).
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A stream that differs from run to run; `stream` tells those of one run apart.
    pub(crate) fn fresh(stream: u64) -> Self {
        // The standard library seeds its hash maps from the operating system; this borrows that seed.
        Self(RandomState::new().hash_one(stream))
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// When `bound` is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "there is no number below 0");
        (self.next() % bound as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_below_the_bound_comes_up() {
        let mut random = Random(7);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[random.below(5)] = true;
        }
        assert_eq!(seen, [true; 5]);
    }
}
