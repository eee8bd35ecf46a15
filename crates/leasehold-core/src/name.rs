//! Text that came from outside and was found to be harmless.

use std::fmt;
use std::sync::Arc;

use unicode_normalization::is_nfc;

use crate::limits::{NAME_BYTES_MAX, REFERENCE_BYTES_MAX, TEXT_BYTES_MAX};

/// The id of an event, seat, pool, section or row.
///
/// Letters, digits and `. _ ~ : @ + -`, so that it stands in a path, a key or a file name as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// A reference of the caller's: a holder, an order, a payment. Printable ASCII, compared byte by byte.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference(Box<str>);

/// A sentence for people: any script, no control or direction-changing characters, in Unicode's composed form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(Box<str>);

/// Why a text was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Nothing there.
    #[error("is empty")]
    Empty,
    /// Too many bytes.
    #[error("is longer than {0} bytes")]
    TooLong(usize),
    /// A character that is not allowed.
    #[error("contains a character that is not allowed")]
    Character,
    /// Unicode that could be written in another way and look the same.
    #[error("is not in Unicode's composed form (NFC)")]
    NotComposed,
}

impl Name {
    /// Takes a text that is a name.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        bounded(text, NAME_BYTES_MAX)?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._~:@+-".contains(&byte);
        if !text.bytes().all(allowed) || text == "." || text == ".." {
            return Err(BadName::Character);
        }
        Ok(Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Reference {
    /// Takes a text that is a reference.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    /// Whether a text is a reference, and why not.
    pub fn check(text: &str) -> Result<(), BadName> {
        bounded(text, REFERENCE_BYTES_MAX)?;
        if text.bytes().all(|byte| byte.is_ascii_graphic()) { Ok(()) } else { Err(BadName::Character) }
    }

    /// The reference as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Text {
    /// Takes a text that can be shown.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        bounded(text, TEXT_BYTES_MAX)?;
        if text.chars().any(|c| c.is_control() || changes_direction(c)) {
            return Err(BadName::Character);
        }
        if !is_nfc(text) {
            return Err(BadName::NotComposed);
        }
        Ok(Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn bounded(text: &str, bytes_max: usize) -> Result<(), BadName> {
    match text.len() {
        0 => Err(BadName::Empty),
        length if length > bytes_max => Err(BadName::TooLong(bytes_max)),
        _ => Ok(()),
    }
}

/// Marks, embeddings, overrides and isolates that make text read in another order than it is stored.
fn changes_direction(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        assert!(Name::parse("A-12").is_ok());
        for bad in
            ["", ".", "..", "a/b", "a b", "{x}", "*", "a\0", "a\r\n", "é", "%00", "\"", &"x".repeat(129)]
        {
            assert!(Name::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn text_is_composed_and_reads_forwards() {
        assert!(Text::parse("Gala für alle").is_ok());
        assert_eq!(Text::parse("e\u{301}"), Err(BadName::NotComposed));
        assert_eq!(Text::parse("a\u{202e}b"), Err(BadName::Character));
    }
}
