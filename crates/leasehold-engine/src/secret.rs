//! Proof of holding: an HMAC of the hold's id under the server's key. It is stored nowhere.

use std::fmt;

use hmac::{Hmac, Mac};
use leasehold_core::HoldId;
use sha2::Sha256;

/// The server's key. Whoever has it can act for every holder.
#[derive(Clone)]
pub struct SecretKey([u8; 32]);

/// 128 bits that prove that one created the hold.
#[derive(Clone, Copy)]
pub struct HoldSecret([u8; 16]);

impl SecretKey {
    /// The key with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A new key.
    pub fn random() -> Self {
        let (one, two) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
        let (three, four) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
        // A version 4 UUID has 122 random bits; a hash of four of them has more than the key needs.
        let mut hash = <Sha256 as sha2::Digest>::new();
        for part in [one, two, three, four] {
            sha2::Digest::update(&mut hash, part.as_bytes());
        }
        Self(sha2::Digest::finalize(hash).into())
    }

    /// The key's bytes, to be kept safe.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The secret of a hold.
    pub fn secret_of(&self, hold: HoldId) -> HoldSecret {
        let full = self.mac(hold).finalize().into_bytes();
        let mut secret = [0; 16];
        secret.copy_from_slice(&full[..16]);
        HoldSecret(secret)
    }

    /// Whether this is the hold's secret. Takes the same time whether it is or not.
    pub fn proves(&self, hold: HoldId, secret: Option<HoldSecret>) -> bool {
        let (given, shown) = secret.map_or(([0; 16], false), |secret| (secret.0, true));
        let right = self.mac(hold).verify_truncated_left(&given).is_ok();
        right & shown
    }

    /// Another key, for another purpose. It tells nothing about this one.
    pub fn for_purpose(&self, purpose: &str) -> SecretKey {
        Self(self.code_of(&[b"a key for another purpose", purpose.as_bytes()]))
    }

    /// A code of these parts that nobody can make without the key. No two lists of parts have the same.
    pub fn code_of(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("an HMAC takes a key of any length");
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    fn mac(&self, hold: HoldId) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("an HMAC takes a key of any length");
        mac.update(&hold.as_raw().to_be_bytes());
        mac
    }
}

impl HoldSecret {
    /// Reads a secret from its one spelling: 32 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 32 || digits.iter().any(|digit| !matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(|number| Self(number.to_be_bytes()))
    }

    /// The secret's spelling. Do not log it.
    pub fn reveal(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

impl fmt::Debug for HoldSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HoldSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_holds_own_secret_proves_it() {
        let key = SecretKey::random();
        let (one, two) = (HoldId::from_raw(1).unwrap(), HoldId::from_raw(2).unwrap());
        let secret = key.secret_of(one);
        assert!(key.proves(one, Some(secret)));
        assert!(key.proves(one, HoldSecret::parse(&secret.reveal())));
        assert!(!key.proves(two, Some(secret)));
        assert!(!key.proves(one, None));
        assert!(!SecretKey::random().proves(one, Some(secret)));
        assert!(
            HoldSecret::parse(&secret.reveal().to_uppercase()).is_none()
                || secret.reveal().bytes().all(|b| b.is_ascii_digit())
        );
        assert!(HoldSecret::parse("").is_none());
    }

    #[test]
    fn purposes_and_parts_are_told_apart() {
        let key = SecretKey::random();
        let (locks, cursors) = (key.for_purpose("locks"), key.for_purpose("cursors"));
        assert_ne!(locks.as_bytes(), cursors.as_bytes());
        assert_ne!(locks.code_of(&[b"ab", b"c"]), locks.code_of(&[b"a", b"bc"]));
        assert_eq!(locks.code_of(&[b"ab"]), key.for_purpose("locks").code_of(&[b"ab"]));
    }

    #[test]
    fn debug_output_has_no_secret() {
        let key = SecretKey::random();
        let secret = key.secret_of(HoldId::from_raw(1).unwrap());
        assert_eq!(format!("{key:?} {secret:?}"), "SecretKey HoldSecret");
    }
}
