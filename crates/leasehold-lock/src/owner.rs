//! Who holds a lock: a token made for one acquisition.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

/// The longest token, in bytes.
pub const OWNER_BYTES_MAX: usize = 200;
/// The longest label, in bytes.
pub const LABEL_BYTES_MAX: usize = 64;

/// The shortest token that a caller may bring: whoever guesses it can release the lock.
const OWNER_BYTES_MIN: usize = 16;
const RANDOM_BYTES: usize = 32;
/// What stands in the place of the time in a token that has none.
const NO_TIME: &str = "-";

/// A token made for one acquisition, and never for another.
///
/// It is what the store compares before it renews or releases, so a late holder cannot touch its
/// successor's lock. Whoever knows it can release the lock: it is not shown by `Debug` and does not belong
/// in a log.
///
/// A token of ours is 32 random hexadecimal digits, then `.` and the time of the acquisition by the
/// owner's clock, or `-` where there is none, then `.` and a label for people, if there is one. To a store
/// it is opaque bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner(Arc<str>);

/// A few words for people: which host, process or job holds the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label(Arc<str>);

/// Why a text is not a token or a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadOwner {
    /// Too short to be hard to guess, or too long.
    #[error("an owner token has {OWNER_BYTES_MIN} to {OWNER_BYTES_MAX} bytes")]
    Length,
    /// A label that is empty or too long.
    #[error("a label has 1 to {LABEL_BYTES_MAX} bytes")]
    LabelLength,
    /// Not printable ASCII, or a `#`, after which stores may write the fence.
    #[error("only printable ASCII without spaces and `#` is allowed")]
    Character,
}

impl Owner {
    /// A fresh token.
    pub fn random(label: Option<&Label>) -> Self {
        Self::from_random(Uuid::new_v4(), label)
    }

    /// A token whose secret part the caller made. It also has the time, so it is another one each time.
    pub fn from_random(random: Uuid, label: Option<&Label>) -> Self {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let millis = since_1970.map_or(0, |time| time.as_millis());
        Self::of_parts(random, &format!("{millis:x}"), label)
    }

    /// A token made of nothing but these: the same again for an acquisition that must be recognised when it
    /// is asked for again. The caller sees to it that nobody can guess the secret part, and that another
    /// acquisition gets another one.
    pub fn derived(secret: Uuid, label: Option<&Label>) -> Self {
        Self::of_parts(secret, NO_TIME, label)
    }

    fn of_parts(random: Uuid, time: &str, label: Option<&Label>) -> Self {
        let mut digits = Uuid::encode_buffer();
        let random: &str = random.simple().encode_lower(&mut digits);
        let token = match label {
            Some(label) => [random, ".", time, ".", &label.0].concat(),
            None => [random, ".", time].concat(),
        };
        Self(token.into())
    }

    /// Takes a token that a caller brought, in any format.
    pub fn parse(text: &str) -> Result<Self, BadOwner> {
        if !(OWNER_BYTES_MIN..=OWNER_BYTES_MAX).contains(&text.len()) {
            return Err(BadOwner::Length);
        }
        if !text.bytes().all(is_allowed) {
            return Err(BadOwner::Character);
        }
        Ok(Self(text.into()))
    }

    /// The token itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The label in a token of ours; `None` in anybody else's.
    pub fn label(&self) -> Option<&str> {
        ours(&self.0)?.1
    }

    /// When a token of ours was made, in milliseconds since 1970 by its maker's clock, if it says so.
    pub fn made_at_millis(&self) -> Option<u64> {
        ours(&self.0)?.0
    }
}

impl Label {
    /// Takes a text that can stand in a token.
    pub fn parse(text: &str) -> Result<Self, BadOwner> {
        if text.is_empty() || text.len() > LABEL_BYTES_MAX {
            return Err(BadOwner::LabelLength);
        }
        if !text.bytes().all(is_allowed) {
            return Err(BadOwner::Character);
        }
        Ok(Self(text.into()))
    }

    /// Makes a label of any text: what cannot stand in one becomes `_`.
    pub fn lossy(text: &str) -> Option<Self> {
        let allowed = |c: char| if u8::try_from(c).is_ok_and(is_allowed) { c } else { '_' };
        Self::parse(&text.chars().take(LABEL_BYTES_MAX).map(allowed).collect::<String>()).ok()
    }

    /// The label as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner(label: {:?})", self.label())
    }
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'#'
}

/// The time and label of a token of ours.
fn ours(token: &str) -> Option<(Option<u64>, Option<&str>)> {
    let (random, rest) = token.split_once('.')?;
    if random.len() != RANDOM_BYTES || !random.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let (millis, label) = match rest.split_once('.') {
        Some((millis, label)) => (millis, Some(label)),
        None => (rest, None),
    };
    match millis {
        NO_TIME => Some((None, label)),
        millis => Some((Some(u64::from_str_radix(millis, 16).ok()?), label)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_carry_their_label_but_never_show_themselves() {
        let label = Label::parse("host-7.pid/12").unwrap();
        let (one, other) = (Owner::random(Some(&label)), Owner::random(Some(&label)));
        assert_ne!(one, other);
        assert_eq!(one.label(), Some("host-7.pid/12"));
        assert!(one.made_at_millis().is_some());
        assert!(!format!("{one:?}").contains(&one.as_str()[..8]));
        assert_eq!(Owner::parse(one.as_str()), Ok(one));
    }

    #[test]
    fn derived_tokens_are_the_same_again() {
        let (secret, label) = (Uuid::new_v4(), Label::parse("job").unwrap());
        let token = Owner::derived(secret, Some(&label));
        assert_eq!(token, Owner::derived(secret, Some(&label)));
        assert_eq!((token.label(), token.made_at_millis()), (Some("job"), None));
        assert_eq!(Owner::derived(secret, None).label(), None);
        assert_eq!(Owner::parse(token.as_str()), Ok(token));
    }

    #[test]
    fn foreign_tokens_are_opaque() {
        let python = Owner::parse("0a1b2c3d4e5f60718293a4b5c6d7e8f9").unwrap();
        assert_eq!((python.label(), python.made_at_millis()), (None, None));
        assert_eq!(Owner::parse("short"), Err(BadOwner::Length));
        assert_eq!(Owner::parse("has a space in it"), Err(BadOwner::Character));
        assert_eq!(Owner::parse("has-a-fence-in-it#7"), Err(BadOwner::Character));
    }

    #[test]
    fn any_text_makes_a_label() {
        assert_eq!(Label::lossy("my host\u{e9}").unwrap().as_str(), "my_host_");
        assert_eq!(Label::lossy(""), None);
    }
}
