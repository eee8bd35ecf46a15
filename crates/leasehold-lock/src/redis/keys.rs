//! Where things stand in Redis.
//!
//! The lock itself is `prefix + name` and nothing else, because clients in other languages use the same key.
//! What belongs to it (its fence, its queue) must be in the same slot of a cluster, whatever braces the
//! name has, so those keys carry a tag that hashes to the slot of the lock.

use std::sync::OnceLock;

use crate::error::StoreError;
use crate::name::LockName;

/// Slots of a cluster.
pub const SLOTS: u16 = 16_384;
/// What our own keys begin with; a listing skips them.
pub(crate) const OWN_PREFIX: &str = "leasehold:";

/// A mark that somebody waits in line for whatever name, so that a release need not look for a line of its own. Not
/// in a cluster, where a script may touch one slot only.
pub(crate) const LINES: &str = "leasehold:lines";

/// Makes the keys of one lock space.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: String,
    is_ours: bool,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        let is_ours = prefix.starts_with(OWN_PREFIX) || OWN_PREFIX.starts_with(prefix);
        Self { prefix: prefix.to_owned(), is_ours }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Refuses a prefix with which a lock's key could be one of our own.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.is_ours {
            return Err(StoreError::Refused(
                "the prefix of the keys is empty or begins like `leasehold:`; choose another one".into(),
            ));
        }
        Ok(())
    }

    pub(crate) fn lock(&self, name: &LockName) -> String {
        [&self.prefix, name.as_str()].concat()
    }

    /// The name of a lock's key; `None` for a key that is not a lock of this space.
    pub(crate) fn name(&self, key: &str) -> Option<LockName> {
        LockName::parse(key.strip_prefix(&self.prefix)?).ok()
    }
}

/// Which node the counter of a slot's fences is good on.
pub(crate) fn guard(slot: u16) -> String {
    own("guard", slot, "")
}

/// The counter of a slot's fences. One per slot, so that any number of names needs no more memory.
pub(crate) fn counter(slot: u16) -> String {
    own("fences", slot, "")
}

/// The channel on which the releases of a slot are told.
pub(crate) fn channel(slot: u16) -> String {
    own("freed", slot, "")
}

/// The channel on which a process is told of the turns of those in it who wait in line.
pub(crate) fn turns(slot: u16, process: &str) -> String {
    own("turns", slot, process)
}

/// Those who wait in line.
pub(crate) fn queue(lock: &str, slot: u16) -> String {
    own("queue", slot, lock)
}

/// When they were last heard of, and who listened for their turn then.
pub(crate) fn heard(lock: &str, slot: u16) -> String {
    own("heard", slot, lock)
}

/// A key or channel of ours in a slot: all of the slot's, or of one lock or process in it.
fn own(kind: &str, slot: u16, whose: &str) -> String {
    let colon = if whose.is_empty() { "" } else { ":" };
    [OWN_PREFIX, kind, ":{", tag(slot), "}", colon, whose].concat()
}

/// The slot of a key, as the cluster computes it: what stands in the first braces counts, if anything does.
pub fn slot(key: &str) -> u16 {
    let hashed = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map_or(key, |(tag, _)| if tag.is_empty() { key } else { tag });
    crc16::State::<crc16::XMODEM>::calculate(hashed.as_bytes()) % SLOTS
}

/// A short text that hashes to the slot.
fn tag(slot: u16) -> &'static str {
    static TAGS: OnceLock<Vec<String>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = vec![None; usize::from(SLOTS)];
        let mut missing = tags.len();
        for number in 0.. {
            let number = number.to_string();
            let found = &mut tags[usize::from(self::slot(&number))];
            if found.is_none() {
                *found = Some(number);
                missing -= 1;
                if missing == 0 {
                    break;
                }
            }
        }
        tags.into_iter().flatten().collect()
    });
    &tags[usize::from(slot)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_lock_share_its_slot_whatever_braces_it_has() {
        let keys = Keys::new("lock:");
        for name in ["a", "{a}", "a}b", "{}", "x{y", "order:{42}:pay", "{{a}}", "}{"] {
            let lock = keys.lock(&LockName::parse(name).unwrap());
            let place = slot(&lock);
            for key in
                [queue(&lock, place), heard(&lock, place), guard(place), counter(place), channel(place)]
            {
                assert_eq!(slot(&key), place, "{key} of {name}");
            }
            assert_eq!(slot(&turns(place, "f00")), place, "{name}");
            assert_eq!(keys.name(&lock).unwrap().as_str(), name);
        }
    }

    #[test]
    fn slots_are_the_clusters() {
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("{user1000}.following"), slot("user1000"));
        assert_eq!(slot("foo{}{bar}"), slot("foo{}{bar}"));
        assert_eq!(slot("foo{{bar}}zap"), slot("{bar"));
    }
}
