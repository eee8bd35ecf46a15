//! Numbers with a meaning: ids that callers see, and places in the state's tables.

use std::fmt;
use std::num::NonZeroU128;

use crate::Timestamp;

/// An event's place in the order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventNo(pub u32);

/// A seat's place in its event's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeatNo(pub u32);

/// A pool's place in its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolNo(pub u32);

/// A section's place in its event's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectionNo(pub u32);

/// Where a hold stands in the state's table; reused after the hold is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldSlot(pub u32);

/// Where a booking stands in the state's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BookingSlot(pub u32);

/// Where a block stands in the state's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSlot(pub u32);

/// A seat's fencing token: it grows with every change of owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

/// Which data set this is, and how often it was restored from a backup. Fences after a restore are higher than all
/// before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

/// The low bits of an epoch tell data sets apart, the others count and rule the fences.
const SET_BITS: u32 = 10;

impl Epoch {
    /// An epoch of a data set that was never restored.
    pub const FIRST: Epoch = Epoch(1 << SET_BITS);

    /// The first epoch of a data set that is made at `now`.
    ///
    /// Its set comes from the clock's seconds: a reader of the data set that was here before, which had the same events
    /// perhaps, is not taken for a reader of this one.
    pub fn first(now: Timestamp) -> Self {
        let set = (now.as_millis() / 1_000) as u32 & ((1 << SET_BITS) - 1);
        Self(Self::FIRST.0 | set)
    }

    const fn count(self) -> u32 {
        self.0 >> SET_BITS
    }

    /// The lowest fence of this epoch. Four billion changes of one seat fit below the next epoch's, and two
    /// million epochs below 2^53, up to which every JSON reader is exact.
    pub const fn fence_floor(self) -> Fence {
        Fence((self.count() as u64).saturating_sub(1) << 32)
    }

    /// The epoch of a copy of this epoch that is put to work at `now`.
    ///
    /// One backup may be restored more than once, so the epoch comes from the clock: five minutes are one step.
    #[must_use]
    pub fn restored(self, now: Timestamp) -> Self {
        const STEP_MILLIS: u64 = 5 * 60 * 1_000;
        const YEAR_2026: u64 = 1_767_225_600_000;
        const COUNT_MAX: u32 = (1 << 21) - 1;
        let steps = now.as_millis().saturating_sub(YEAR_2026) / STEP_MILLIS;
        let by_clock = u32::try_from(steps).unwrap_or(u32::MAX).min(COUNT_MAX);
        let set = self.0 & ((1 << SET_BITS) - 1);
        Self(by_clock.max(self.count() + 1) << SET_BITS | set)
    }
}

impl Fence {
    /// The fence after this one, in `epoch`.
    #[must_use]
    pub fn next(self, epoch: Epoch) -> Fence {
        Fence(self.0.max(epoch.fence_floor().0) + 1)
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU128);

        impl $name {
            /// What its text begins with.
            pub const PREFIX: &'static str = $prefix;

            /// The id with this number; none for 0.
            pub fn from_raw(raw: u128) -> Option<Self> {
                NonZeroU128::new(raw).map(Self)
            }

            /// The id's number.
            pub fn as_raw(self) -> u128 {
                self.0.get()
            }

            /// Reads the one way an id is written; anything else is none.
            pub fn parse(text: &str) -> Option<Self> {
                decode(text.strip_prefix($prefix)?).and_then(Self::from_raw)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let text = encode(self.0.get());
                f.write_str($prefix)?;
                f.write_str(std::str::from_utf8(&text).expect("the alphabet is ASCII"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(
    /// Names a hold. Knowing it gives no rights: the hold's secret does.
    HoldId,
    "hold_"
);
id!(
    /// Names a sale.
    BookingId,
    "book_"
);
id!(
    /// Names seats kept back from sale.
    BlockId,
    "block_"
);

/// Crockford's base 32, lower case: no letter that is mistaken for a digit.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

fn encode(mut number: u128) -> [u8; 26] {
    let mut text = [b'0'; 26];
    for digit in text.iter_mut().rev() {
        *digit = ALPHABET[(number & 31) as usize];
        number >>= 5;
    }
    text
}

fn decode(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    if bytes.len() != 26 || bytes[0] > b'7' {
        return None;
    }
    bytes.iter().try_fold(0_u128, |number, byte| {
        let digit = ALPHABET.iter().position(|letter| letter == byte)?;
        Some(number << 5 | digit as u128)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_from_its_text_and_from_no_other() {
        for raw in [1, 31, 32, u128::MAX, u128::MAX / 3] {
            let id = HoldId::from_raw(raw).expect("not zero");
            assert_eq!(HoldId::parse(&id.to_string()), Some(id));
            assert_eq!(HoldId::parse(&id.to_string().to_uppercase()), None);
            assert_eq!(BookingId::parse(&id.to_string()), None);
        }
        for text in
            ["", "hold_", "hold_0", "hold_00000000000000000000000000", "hold_8zzzzzzzzzzzzzzzzzzzzzzzzz"]
        {
            assert_eq!(HoldId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn fences_of_a_later_epoch_are_higher() {
        let (begun, later) =
            (Timestamp::from_millis(1_795_000_000_000), Timestamp::from_millis(1_795_000_400_000));
        let first = Epoch::first(begun);
        let late = Fence(123_456).next(first);
        assert_eq!(late, Fence(123_457), "the first epoch begins at 1");
        let restored = first.restored(begun);
        assert!(Fence(3).next(restored) > late);
        assert!(Fence(3).next(first.restored(later)) > Fence(9).next(restored), "restored again");
    }

    #[test]
    fn data_sets_made_one_after_the_other_have_epochs_of_their_own() {
        let made = |second: u64| Epoch::first(Timestamp::from_millis(1_795_000_000_000 + 1_000 * second));
        let different: std::collections::BTreeSet<Epoch> = (0..1_000).map(made).collect();
        assert_eq!(different.len(), 1_000);
        assert!(different.iter().all(|epoch| epoch.fence_floor() == Fence(0)));
    }
}
