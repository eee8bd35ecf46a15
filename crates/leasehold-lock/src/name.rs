//! What can be locked: one name, or a few names at once.

use std::fmt;
use std::sync::Arc;

/// The longest name, in bytes.
pub const LOCK_NAME_BYTES_MAX: usize = 512;
/// The most names of one lease.
pub const NAMES_MAX: usize = 32;

/// What names of a program's own begin with. No text of a user's does, and it comes before all of them.
const RESERVED: char = '\u{1}';

/// The name of a lock: any printable text, compared byte by byte.
///
/// What stands before the first `:` is the name's *class*; hold times are measured per class.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

/// The names that one lease covers: at least one, in order, none twice.
///
/// The order is what keeps two callers that want the same names from waiting for each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Names(Arc<[LockName]>);

/// Why a text cannot be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadLockName {
    /// Nothing there.
    #[error("a lock's name must not be empty")]
    Empty,
    /// Too many bytes.
    #[error("a lock's name has at most {LOCK_NAME_BYTES_MAX} bytes")]
    TooLong,
    /// A line break, a zero byte and the like.
    #[error("a lock's name has no control characters")]
    Control,
    /// Too many names at once, or none.
    #[error("a lease covers 1 to {NAMES_MAX} names")]
    Count,
}

impl LockName {
    /// Takes a text that can be locked.
    pub fn parse(text: &str) -> Result<Self, BadLockName> {
        if text.is_empty() {
            return Err(BadLockName::Empty);
        }
        if text.len() > LOCK_NAME_BYTES_MAX {
            return Err(BadLockName::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(BadLockName::Control);
        }
        Ok(Self(text.into()))
    }

    /// A name for a program's own use in a store that it shares with its users: none of theirs can be the same.
    pub fn reserved(text: &str) -> Result<Self, BadLockName> {
        let Self(text) = Self::parse(text)?;
        let name = format!("{RESERVED}{text}");
        if name.len() > LOCK_NAME_BYTES_MAX { Err(BadLockName::TooLong) } else { Ok(Self(name.into())) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands before the first `:`, or the whole name.
    pub fn class(&self) -> &str {
        self.0.split_once(':').map_or(&self.0, |(class, _)| class)
    }
}

impl Names {
    /// Puts names in order and drops repetitions.
    pub fn new(names: impl IntoIterator<Item = LockName>) -> Result<Self, BadLockName> {
        let mut names: Vec<LockName> = names.into_iter().take(NAMES_MAX + 1).collect();
        if names.is_empty() || names.len() > NAMES_MAX {
            return Err(BadLockName::Count);
        }
        names.sort_unstable();
        names.dedup();
        Ok(Self(names.into()))
    }

    /// The names, in order.
    pub fn as_slice(&self) -> &[LockName] {
        &self.0
    }

    /// The first name; there always is one.
    pub fn first(&self) -> &LockName {
        &self.0[0]
    }

    /// The only name, when there is only one.
    pub fn single(&self) -> Option<&LockName> {
        if let [name] = &*self.0 { Some(name) } else { None }
    }
}

impl From<LockName> for Names {
    fn from(name: LockName) -> Self {
        Self(Arc::new([name]))
    }
}

impl TryFrom<&str> for Names {
    type Error = BadLockName;

    fn try_from(text: &str) -> Result<Self, BadLockName> {
        LockName::parse(text).map(Self::from)
    }
}

impl TryFrom<&String> for Names {
    type Error = BadLockName;

    fn try_from(text: &String) -> Result<Self, BadLockName> {
        Self::try_from(text.as_str())
    }
}

impl TryFrom<String> for Names {
    type Error = BadLockName;

    fn try_from(text: String) -> Result<Self, BadLockName> {
        Self::try_from(text.as_str())
    }
}

impl TryFrom<&[&str]> for Names {
    type Error = BadLockName;

    fn try_from(texts: &[&str]) -> Result<Self, BadLockName> {
        if texts.len() > NAMES_MAX {
            return Err(BadLockName::Count);
        }
        Self::new(texts.iter().map(|text| LockName::parse(text)).collect::<Result<Vec<_>, _>>()?)
    }
}

impl<const N: usize> TryFrom<[&str; N]> for Names {
    type Error = BadLockName;

    fn try_from(texts: [&str; N]) -> Result<Self, BadLockName> {
        Self::try_from(texts.as_slice())
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "`{name}`")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_and_distinct_and_never_joined() {
        let names = Names::try_from(["b", "a", "b"]).unwrap();
        assert_eq!(names.to_string(), "`a`, `b`");
        assert_ne!(Names::try_from(["ab", "c"]).unwrap(), Names::try_from(["a", "bc"]).unwrap());
    }

    #[test]
    fn what_is_not_a_name_is_refused() {
        assert_eq!(LockName::parse(""), Err(BadLockName::Empty));
        assert_eq!(LockName::parse("a\nb"), Err(BadLockName::Control));
        assert_eq!(LockName::parse(&"x".repeat(LOCK_NAME_BYTES_MAX + 1)), Err(BadLockName::TooLong));
        assert_eq!(Names::new([]), Err(BadLockName::Count));
        assert_eq!(Names::try_from(["x"; NAMES_MAX + 1]), Err(BadLockName::Count));
    }

    #[test]
    fn a_reserved_name_is_none_that_a_user_can_ask_for() {
        let name = LockName::reserved("sweeper").unwrap();
        assert_eq!(LockName::parse(name.as_str()), Err(BadLockName::Control));
        assert!(name < LockName::parse("!").unwrap(), "lists begin after it");
        assert_eq!(LockName::reserved(&"x".repeat(LOCK_NAME_BYTES_MAX)), Err(BadLockName::TooLong));
    }

    #[test]
    fn class_is_what_stands_before_the_first_colon() {
        assert_eq!(LockName::parse("order:12:3").unwrap().class(), "order");
        assert_eq!(LockName::parse("nightly").unwrap().class(), "nightly");
    }
}
