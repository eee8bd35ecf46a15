//! Random numbers that a printed seed brings back.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64: small, fast, and the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed of this run: `LEASEHOLD_TEST_SEED`, or one from the clock. It is printed.
    pub fn seed_of_this_run(test: &str) -> u64 {
        let given = std::env::var("LEASEHOLD_TEST_SEED").ok();
        let seed = given.and_then(|text| text.parse().ok()).unwrap_or_else(seed_from_clock);
        println!("{test}: LEASEHOLD_TEST_SEED={seed}");
        seed
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `range`, which must not be empty.
    pub fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        assert!(range.start < range.end);
        range.start + self.next_u64() % (range.end - range.start)
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.within(0..100) < percent
    }

    /// One element of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// An index below `length`, which must not be 0.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.within(0..length as u64)).expect("below a usize")
    }
}

fn seed_from_clock() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos() % u128::from(u64::MAX)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_brings_its_numbers_back() {
        let (mut first, mut second) = (Random::new(7), Random::new(7));
        for _ in 0..100 {
            assert_eq!(first.within(3..17), second.within(3..17));
        }
    }
}
